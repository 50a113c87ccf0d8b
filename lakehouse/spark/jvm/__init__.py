"""The Java runtime beside this process, and the Java of this package in it."""
