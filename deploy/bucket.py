"""Makes a bucket in the store of `AWS_ENDPOINT_URL`, if it is not there: `deploy.bucket NAME`."""

from __future__ import annotations

import os
import sys

from pyarrow.fs import S3FileSystem

if __name__ == "__main__":
    store = S3FileSystem(
        endpoint_override=os.environ["AWS_ENDPOINT_URL"], allow_bucket_creation=True
    )
    store.create_dir(sys.argv[1])
