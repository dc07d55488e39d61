#!/bin/bash
# with_s3.sh COMMAND [ARG...]
# Runs a command beside a fresh S3 server (RUNFS_TEST_S3_SERVER: versitygw unless told, or minio)
# with one bucket, and stops the server after it. The
# command finds AWS_*, RUNFS_TEST_S3_URL and RUNFS_TEST_S3_ENDPOINT in its environment. Its exit
# code is the script's; 77 when there is no server program.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/lib.sh"

server=${RUNFS_TEST_S3_SERVER:-versitygw}
# Not on tmpfs where that lacks xattrs: TMPDIR decides.
dir=$(mktemp -d "${TMPDIR:-/tmp}/runfs-s3.XXXXXX")
finish() {
    "$here/$server.sh" stop "$dir"
    rm -rf "$dir"
}
trap finish EXIT

export S3_KEY=runfs-test-key S3_SECRET=runfs-test-secret
bucket=runfs-test
mkdir -p "$dir/data/$bucket" # with both servers a folder is a bucket
started=no
for _ in 1 2 3; do # another program may take the port in between
    port=$(free_port)
    code=0
    "$here/$server.sh" start "$port" "$dir" || code=$?
    [ "$code" = 77 ] && exit 77
    if [ "$code" = 0 ]; then
        started=yes
        break
    fi
    "$here/$server.sh" stop "$dir"
done
[ "$started" = yes ]

unset AWS_PROFILE AWS_DEFAULT_PROFILE AWS_SESSION_TOKEN AWS_ENDPOINT_URL_S3 AWS_CA_BUNDLE
export AWS_ACCESS_KEY_ID=$S3_KEY AWS_SECRET_ACCESS_KEY=$S3_SECRET
export AWS_REGION=us-east-1 AWS_ENDPOINT_URL=http://127.0.0.1:$port
export AWS_SHARED_CREDENTIALS_FILE=/dev/null AWS_CONFIG_FILE=/dev/null
export RUNFS_TEST_S3_ENDPOINT=$AWS_ENDPOINT_URL
export RUNFS_TEST_S3_URL=s3://$bucket/contract
unset RUNFS_TEST_S3_DIR
[ "$server" != versitygw ] || export RUNFS_TEST_S3_DIR=$dir/data/$bucket # objects are plain files
export RUNFS_TEST_S3_PID_FILE=$dir/server.pid
code=0
"$@" || code=$?
exit "$code"
