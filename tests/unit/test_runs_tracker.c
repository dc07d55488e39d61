/* A TorchX tracker's configuration file as a store. */
#include "common/buf.h"
#include "common/mem.h"
#include "runs/config.h"
#include "tests/lib/config_lines.h"
#include "tests/lib/suite.h"
#include "tests/lib/temp_dir.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char dir[256], origin[300];

static void make_dir(void)
{
    temp_dir_make(dir, sizeof(dir));
    (void)snprintf(origin, sizeof(origin), "%s/runfs.json", dir);
}

static void remove_dir(void)
{
    temp_dir_remove(dir);
}

static void put_tracker(const char *text, mode_t mode)
{
    char path[300];
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/t.conf", dir);
    file = fopen(path, "w");
    ck_assert(file && fputs(text, file) >= 0 && fclose(file) == 0);
    ck_assert_int_eq(chmod(path, mode), 0);
}

#define CONFIG "{\"stores\":{\"meta\":{\"torchx_config\":\"t.conf\"}}}"

static const struct {
    const char *tracker, *store;
} legal[] = {
    {"protocol=file\nroot_path=/exp/track\n", "meta file:///exp/track\n"},
    {"protocol=file\nroot_path=file:///exp/track\n", "meta file:///exp/track\n"},
    /* What is skipped: comments, what has no "=", no key, no value; space is nothing. */
    {"# protocol=hdfs\n protocol = file \nsecret\n=x\nanon=\n\n\troot_path\t=\t/a b = c\t\n",
     "meta file:///a b = c\n"},
    {"protocol=file\r\nroot_path=/x\r\n", "meta file:///x\n"},
    {"protocol=file\rroot_path=/x", "meta file:///x\n"},
    /* The later of two lines counts. */
    {"protocol=s3\nroot_path=/x\nprotocol=file", "meta file:///x\n"},
    {"protocol=s3\nroot_path=bucket/a\n", "meta s3://bucket/a\n"},
    {"protocol=s3a\nroot_path=s3://bucket/a\n", "meta s3://bucket/a\n"},
    {"protocol=s3\nroot_path=b/t\nclient_kwargs.endpoint_url=http://127.0.0.1:9000\n"
     "client_kwargs.region_name=eu\nanon=True\nrequester_pays=false\nuse_listings_cache=False\n"
     "config_kwargs.s3.addressing_style=path\nprofile=me\n",
     "meta s3://b/t endpoint=http://127.0.0.1:9000 region=eu no_sign_request=true "
     "path_style=true profile=me\n"},
    {"protocol=hdfs\nroot_path=/x\nhost=nn\nport=8020\nuser=me\n",
     "meta hdfs:///x host=nn port=8020 user=me\n"},
    {"protocol=webhdfs\nroot_path=webhdfs://nn:9870/x\n", "meta webhdfs://nn:9870/x\n"},
    {"protocol=gcs\nroot_path=b/x\n", "meta gs://b/x\n"},
    {"protocol=gs\nroot_path=gs://b/x\n", "meta gs://b/x\n"},
    {"protocol=abfs\nroot_path=box/x\n", "meta abfs://box/x\n"},
};

START_TEST(tracker_is_a_store)
{
    make_dir();
    put_tracker(legal[_i].tracker, 0644);
    config_lines_legal(CONFIG, origin, legal[_i].store, "** meta ** data\n");
    remove_dir();
}
END_TEST

/* A setting of the configuration wins, and the default filesystem has the host. */
START_TEST(configuration_completes_a_tracker)
{
    make_dir();
    put_tracker("protocol=s3\nroot_path=b\nclient_kwargs.region_name=eu\n", 0644);
    config_lines_legal(
        "{\"stores\":{\"meta\":{\"torchx_config\":\"t.conf\",\"region\":\"us\"}}}", origin,
        "meta s3://b region=us\n", "** meta ** data\n");
    put_tracker("protocol=hdfs\nroot_path=/x\n", 0644);
    config_lines_legal("{\"default_fs\":\"hdfs://nn:8020\",\"stores\":{\"meta\":"
                       "{\"torchx_config\":\"t.conf\"}}}",
                       origin, "meta hdfs://nn:8020/x\n", "** meta ** data\n");
    remove_dir();
}
END_TEST

static const struct {
    const char *tracker;
    mode_t mode;
    const char *text; /* behind the file's name; each ended by a newline */
} refused[] = {
    {"protocol=file\n", 0644,
     ": a tracker needs \"protocol\" and \"root_path\"; there is no \"root_path\"\n"},
    {"root_path=/x\n", 0644,
     ": a tracker needs \"protocol\" and \"root_path\"; there is no \"protocol\"\n"},
    {"protocol=file\nroot_path=/x\na.=1\n", 0644,
     ":3: Illegal config key \"a.\": it ends in \".\"\n"},
    {"protocol=file\nroot_path=/x\n.=1\n", 0644,
     ":3: Illegal config key \".\": it ends in \".\"\n"},
    {"protocol=file\nroot_path=/x\nanon=no\nanon.a=1\n", 0644,
     ":4: \"anon.a\" nests in \"anon\", which is a text in line 3\n"},
    {"protocol=file\nroot_path=x\n", 0644, ":2: \"root_path\" must begin with \"/\"\n"},
    {"protocol=ftp\nroot_path=/x\n", 0644,
     ":1: unknown protocol \"ftp\"; known are file, local, s3, s3a, hdfs, webhdfs, gs, gcs, "
     "abfs, "
     "abfss, az\n"},
    {"protocol=hdfs\nroot_path=s3://b/x\n", 0644,
     ":2: stores.meta: Mismatched namespace: found s3:// but expected hdfs://\n"},
    {"protocol=s3\nroot_path=k:hush@b/x\n", 0644,
     ":2: \"root_path\": credentials don't belong in a URL\n"},
    {"protocol=s3\nroot_path=b\nendpoint_url=http://k:hush@h\n", 0644,
     ":3: \"endpoint_url\": credentials don't belong in a URL\n"},
    {"protocol=s3\nroot_path=b\nanno=true\n", 0644,
     ":3: unknown \"anno\", did you mean \"anon\"?\n"},
    {"protocol=s3\nroot_path=b\nwhatever=1\n", 0644,
     ":3: \"whatever\" has no meaning for runfs; leave it out of its copy of the file\n"},
    {"protocol=s3\nroot_path=b\nanon=perhaps\n", 0644, ":3: \"anon\" must be true or false\n"},
    {"protocol=s3\nroot_path=b\nconfig_kwargs.s3.addressing_style=odd\n", 0644,
     ":3: \"config_kwargs.s3.addressing_style\" must be path, virtual or auto\n"},
    {"protocol=s3\nroot_path=b\nsecret=hush\n", 0640,
     ":3: \"secret\" is a secret, and others may read the file (mode 0640): chmod 600 it; "
     "runfs "
     "takes keys from the environment or a profile only\n"},
    {"protocol=s3\nroot_path=b\nclient_kwargs.aws_secret_access_key=hush\n", 0600,
     ":3: \"client_kwargs.aws_secret_access_key\" is a secret: runfs takes keys from the "
     "environment or a profile only; leave it out of its copy of the file, and say "
     "\"profile=NAME\"\n"},
    {"protocol=s3\nroot_path=\xff\n", 0644, ": no text in UTF-8\n"},
    /* All of it at once, by lines. */
    {"protocol=s3\nkey=hush\nx.=1\n", 0600,
     ": a tracker needs \"protocol\" and \"root_path\"; there is no \"root_path\"\n"
     ":2: \"key\" is a secret: runfs takes keys from the environment or a profile only; leave "
     "it "
     "out of its copy of the file, and say \"profile=NAME\"\n"
     ":3: Illegal config key \"x.\": it ends in \".\"\n"},
};

START_TEST(tracker_says_what_is_wrong)
{
    auto_buf struct buf lines = BUF_INIT(8192);
    const char *line = refused[_i].text;

    make_dir();
    put_tracker(refused[_i].tracker, refused[_i].mode);
    while (*line) {
        size_t len = strcspn(line, "\n") + 1;

        ck_assert_int_eq(buf_addf(&lines, "1:36: %s/t.conf%.*s", dir, (int)len, line), 0);
        line += len;
    }
    config_lines_refused(CONFIG, origin, lines.data);
    remove_dir();
}
END_TEST

START_TEST(missing_tracker_is_named)
{
    config_lines_refused("{\"stores\":{\"meta\":{\"torchx_config\":\"/nowhere/t.conf\"}}}",
                         "c.json", "1:36: /nowhere/t.conf: No such file or directory\n");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("runs tracker");
    TCase *t = tcase_create("tracker");

    tcase_add_loop_test(t, tracker_is_a_store, 0, ARRAY_SIZE(legal));
    tcase_add_test(t, configuration_completes_a_tracker);
    tcase_add_loop_test(t, tracker_says_what_is_wrong, 0, ARRAY_SIZE(refused));
    tcase_add_test(t, missing_tracker_is_named);
    suite_add_tcase(s, t);
    return suite_run(s);
}
