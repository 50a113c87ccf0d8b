"""Which manifests and files a filter can skip."""
