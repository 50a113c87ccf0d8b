"""How a table is: files, layout, bytes, scans."""
