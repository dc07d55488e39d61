"""Compares runfs's signatures with botocore's, over generated requests.

botocore builds, serialises and signs real calls of its S3 and STS clients; nothing is sent. Of
each the raw key, the raw query and the headers that were signed go to `sign_requests`, whose
path, query and signature must be the same. --seed (SIGN_SEED) and --count choose other requests.
"""
import argparse
import json
import os
import random
import subprocess
import sys
from urllib.parse import parse_qsl, urlsplit

import botocore.awsrequest
import botocore.config
import botocore.session

KEYS = ["plain", "a b", "a  b ", " a", "a=b&c=d", "a+b", "100%", "%2F", "%zz", "a//b", "a///", "/a",
        "../x", "a/../b", "./a", "a/.", "..", ".", "a?b#c", "a;b:c,d", "käse", "ключ", "漢字/かな",
        "e\u0301", "\U0001f600", "a\tb", "a\nb", "\x01\x7f", "\u00a0", "\ufeff", "~-._", "!*'()",
        "@$&+,/:;=?", "\"<>\\^`{|}", "[x]", "a" * 1024, "ä" * 512, "dir/", "x.runfs/locks/a"]
ALPHABET = (" =+%/.~-_&?#;:,@!$'()*[]{}|\\^`\"<>\t\n\x7f" + "abcXYZ019" + "äßяж漢\U0001f680\u2028")
BUCKETS = ["bkt", "my-bucket.example", "a1b"]
UNSIGNED = "UNSIGNED-PAYLOAD"
REGIONS = ["us-east-1", "eu-central-1", "cn-north-1"]


class Generator:
    """Random calls in the forms that the driver uses, and some more."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def text(self, most=40):
        return "".join(self.random.choice(ALPHABET)
                       for _ in range(self.random.randint(1, most)))

    def key(self):
        return self.random.choice(KEYS) if self.random.random() < 0.4 else self.text()

    def ascii(self):
        words = self.random.choices(["a", "b=c", "x;y", "%41", "  two  blanks", "q\"q"], k=3)
        return " ".join(words).strip()

    def call(self):
        r = self.random
        at = {"Bucket": r.choice(BUCKETS), "Key": self.key()}
        upload = dict(at, UploadId=r.choice(["ID", "a+b/c==", "x%y z", "é"]))
        kinds = [
            ("head_object", at),
            ("get_object", dict(at, Range=f"bytes={r.randint(0, 9)}-{r.randint(9, 99)}",
                                IfMatch='"abc"')),
            ("get_object", dict(at, ChecksumMode="ENABLED", RequestPayer="requester")),
            ("put_object", dict(at, Body=self.ascii() * r.randint(0, 5), ContentType="a/b",
                                IfNoneMatch="*", Metadata={"mode": "33188", "x": self.ascii()})),
            ("put_object", dict(at, Body=b"x", ServerSideEncryption="aws:kms",
                                SSEKMSKeyId="arn:aws:kms:x:1:key/2", StorageClass="STANDARD_IA",
                                ChecksumCRC32C="mnG7TA==")),
            ("delete_object", at),
            ("head_bucket", {"Bucket": at["Bucket"]}),
            ("list_objects_v2", {"Bucket": at["Bucket"], "Prefix": self.key(), "Delimiter": "/",
                                 "EncodingType": "url", "MaxKeys": r.randint(1, 1000),
                                 "ContinuationToken": self.text()}),
            ("list_objects_v2", {"Bucket": at["Bucket"], "Prefix": ""}),
            ("delete_objects", {"Bucket": at["Bucket"],
                                "Delete": {"Objects": [{"Key": "a"}, {"Key": "b c"}]}}),
            ("copy_object", dict(at, CopySource={"Bucket": "bkt", "Key": self.key()},
                                 MetadataDirective="REPLACE", CopySourceIfMatch='"e"')),
            ("create_multipart_upload", dict(at, ChecksumAlgorithm="CRC32C")),
            ("upload_part", dict(upload, PartNumber=r.randint(1, 10000), Body=b"hello")),
            ("upload_part_copy", dict(upload, PartNumber=r.randint(1, 10000),
                                      CopySource={"Bucket": "bkt", "Key": self.key()},
                                      CopySourceRange="bytes=0-99")),
            ("list_parts", dict(upload, PartNumberMarker=r.randint(0, 9000))),
            ("complete_multipart_upload",
             dict(upload, IfMatch='"x"',
                  MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": '"e"'}]})),
            ("abort_multipart_upload", upload),
            ("sts.assume_role", {"RoleArn": "arn:aws:iam::1:role/" + self.ascii(),
                                 "RoleSessionName": "runfs-1", "ExternalId": self.ascii()}),
        ]
        return r.choice(kinds)


class Botocore:
    """Clients whose requests end before they are sent."""

    def __init__(self):
        for name in [n for n in os.environ if n.startswith("AWS_")]: # this machine's settings are not asked for
            del os.environ[name]
        self.session = botocore.session.get_session()
        self.clients = {}
        self.request = None

    def client(self, service, region, style, token):
        name = (service, region, style, token)
        if name not in self.clients:
            config = botocore.config.Config(
                s3={"addressing_style": style}, signature_version="v4" if service == "sts" else "s3v4",
                request_checksum_calculation="when_required", parameter_validation=False)
            client = self.session.create_client(
                service, region_name=region, aws_access_key_id="AKIDEXAMPLE",
                aws_secret_access_key="secret/with+signs=", aws_session_token=token, config=config,
                endpoint_url="http://127.0.0.1:9000/base" if style == "path" else None)
            client.meta.events.register("before-send", self.catch)
            self.clients[name] = client
        return self.clients[name]

    def catch(self, request, **_):
        self.request = request
        raise Caught()

    def sign(self, generator):
        name, args = generator.call()
        service, _, operation = name.rpartition(".")
        client = self.client(service or "s3", generator.random.choice(REGIONS),
                             generator.random.choice(["path", "virtual"]),
                             generator.random.choice([None, "TOKEN/+=="]))
        try:
            getattr(client, operation)(**args)
        except Caught:
            return self.request, args, service or "s3", name
        raise AssertionError(f"{name}: nothing was sent")


class Caught(Exception):
    pass


def text(value):
    return value.decode() if isinstance(value, bytes) else value


def base_of(url, args, service):
    """What stands before the key in a path, as the driver builds it."""
    base = "/base" if url.port else ""
    if service == "sts":
        return base or "/"
    if url.netloc.startswith(args["Bucket"] + "."):
        return base + "/"
    return f"{base}/{args['Bucket']}" + ("/" if "Key" in args else "")


def with_equals(query):
    """botocore sends "?uploads" and signs "uploads="; the driver sends what it signs."""
    pairs = [pair if "=" in pair else pair + "=" for pair in query.split("&") if pair]
    return "&".join(sorted(pairs))


def as_question(request, args, service):
    """What the tool needs to know, out of botocore's signed request, and what it must say."""
    headers = {name.lower(): text(value) for name, value in request.headers.items()}
    credential, signed, _ = (part.split("=", 1)[1]
                             for part in headers["authorization"].split(" ", 1)[1].split(", "))
    access, _, region, _, _ = credential.split("/")
    url = urlsplit(request.url)
    headers["host"] = url.netloc
    body = request.body or b""
    if not isinstance(body, (bytes, str)):
        body.seek(0)
        body = body.read()
    body = body.encode() if isinstance(body, str) else body
    return {
        "method": request.method, "base": base_of(url, args, service),
        "key": args.get("Key", ""),
        "query": parse_qsl(url.query, keep_blank_values=True),
        "headers": [[name, headers[name]] for name in signed.split(";")],
        "body": None if headers.get("x-amz-content-sha256") == UNSIGNED else body.decode(),
        "date": headers["x-amz-date"], "access": access, "secret": "secret/with+signs=",
        "region": region, "service": service,
    }, {"path": request.url.partition("?")[0].partition(url.netloc)[2],
        "query": with_equals(url.query), "authorization": headers["authorization"]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=int(os.environ.get("SIGN_SEED", 20261121)))
    parser.add_argument("--count", type=int, default=3000)
    args = parser.parse_args()
    tool = os.path.join(os.environ.get("RUNFS_BUILD", "build/debug"), "tests", "sign_requests")
    generator, judge = Generator(args.seed), Botocore()
    questions, expected, names, kinds = [], [], [], set()
    for _ in range(args.count):
        request, call, service, name = judge.sign(generator)
        question, answer = as_question(request, call, service)
        questions.append(json.dumps(question))
        expected.append(answer)
        names.append((name, call.get("Key", "")))
        kinds.add(name)
        if request.url.startswith("http:"): # as s3_add_checksum() does
            assert question["body"] is not None, f"{name}: botocore leaves the body unsigned over plain http"
    done = subprocess.run([tool], input="\n".join(questions) + "\n", text=True, check=True,
                          stdout=subprocess.PIPE)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(expected), f"{len(answers)} answers to {len(expected)} questions"
    failed = 0
    for (name, key), want, got in zip(names, expected, answers):
        if want != got:
            failed += 1
            if failed <= 10:
                print(f"FAIL {name} {key!r}\n  botocore {want}\n  runfs    {got}")
    if failed:
        print(f"REPEAT: SIGN_SEED={args.seed} ./check.sh --job sign {os.path.basename(os.environ.get('RUNFS_BUILD', 'debug'))}")
    print(f"seed {args.seed}: {len(kinds)} kinds of calls, "
          f"{len(set(questions))} different requests")
    print(f"sign: {len(answers) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
