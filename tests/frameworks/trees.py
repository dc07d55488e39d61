"""What is in a folder and what is in a store, in the same words: {path: ("file", hash, size) or ("link", target)}."""

import hashlib
import os

import boto3

import harness


def of_bytes(data):
    return "file", hashlib.sha256(data).hexdigest(), len(data)


def tree(folder):
    """Of everything below a folder."""
    found = {}
    for where, folders, files in os.walk(folder):
        for name in files + [f for f in folders if os.path.islink(os.path.join(where, f))]:
            path = os.path.join(where, name)
            key = os.path.relpath(path, folder)
            if os.path.islink(path):
                found[key] = ("link", os.readlink(path))
                continue
            with open(path, "rb") as f:
                found[key] = of_bytes(f.read())
    return found


def client(place):
    return boto3.client("s3", endpoint_url=place.gateway.endpoint, region_name=harness.REGION,
                        aws_access_key_id=harness.ACCESS_KEY, aws_secret_access_key=harness.SECRET_KEY)


def listed(s3, place, prefix):
    """{key below the prefix: etag} of all objects; directory markers are none."""
    return {item["Key"][len(prefix) + 1:]: item["ETag"]
            for page in s3.get_paginator("list_objects_v2").paginate(Bucket=place.gateway.bucket, Prefix=prefix + "/")
            for item in page.get("Contents", []) if not item["Key"].endswith("/")}


def get(s3, place, prefix, key):
    return s3.get_object(Bucket=place.gateway.bucket, Key=f"{prefix}/{key}")["Body"].read()


def stored(place, prefix):
    """As botocore lists and reads it."""
    s3 = client(place)
    return {key: of_bytes(get(s3, place, prefix, key)) for key in listed(s3, place, prefix)}


def differences(one, other):
    keys = sorted(k for k in one.keys() | other.keys() if one.get(k) != other.get(k))
    return ", ".join(f"{k}: {one.get(k)} / {other.get(k)}" for k in keys[:4])
