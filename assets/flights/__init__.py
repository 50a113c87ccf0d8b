"""The demo source: 336,776 flights from New York in 2013, and three tables derived from them."""
