"""The demo source: 336,776 flights that left New York in 2013, and three tables derived from them."""
