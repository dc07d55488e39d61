/* cli/options and its neighbours: option texts in, values or messages out. */
#include "backends/store.h"
#include "cli/command.h"
#include "cli/control_io.h"
#include "cli/mountpoint.h"
#include "cli/options.h"
#include "common/mem.h"
#include "common/nearest.h"
#include "common/units.h"
#include "runs/policy_fields.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct mount_options options;
static struct op op;

static void setup(void)
{
    mount_options_init(&options);
    op_init(&op, OP_FOREVER);
}

static void teardown(void)
{
    mount_options_release(&options);
}

START_TEST(every_kind_is_set)
{
    ck_assert_msg(mount_options_parse(&options,
                                      "cache_dir=/c,cache_size=200GiB,cache_reserve=64M,"
                                      "durability=store,attr_timeout=250ms,entry_timeout=2s,"
                                      "list_timeout=1m,upload_interval=0,settle=3s,"
                                      "upload_jobs=7,download_jobs=9,part_size=8MiB,"
                                      "list_memory=1G,allow_other,ro,uid=1000,gid=1001,"
                                      "umask=077,fmask=0137,dmask=027,"
                                      "log_level=debug,passthrough=off,incomplete=show,"
                                      "staging=*.tmp:tmp-*,connections=5,layout=plain,"
                                      "drain_timeout=9s,mount_timeout=4s",
                                      &op) == 0,
                  "%s", op.why);
    ck_assert_str_eq(options.cache_dir, "/c");
    ck_assert_uint_eq(options.cache.size_bytes, UINT64_C(200) << 30);
    ck_assert_uint_eq(options.cache.reserve_bytes, UINT64_C(64) << 20);
    ck_assert_int_eq(options.durability, DURABILITY_STORE);
    ck_assert_int_eq(options.cache.attr_timeout_ns, 250 * NS_PER_MS);
    ck_assert_int_eq(options.entry_timeout_ns, 2 * NS_PER_SEC);
    ck_assert_int_eq(options.cache.list_timeout_ns, 60 * NS_PER_SEC);
    ck_assert_int_eq(options.cache.upload_interval_ns, 0);
    ck_assert_int_eq(options.cache.settle_ns, 3 * NS_PER_SEC);
    ck_assert_uint_eq(options.cache.upload_jobs, 7);
    ck_assert_uint_eq(options.cache.download_jobs, 9);
    ck_assert_uint_eq(options.cache.part_size, UINT64_C(8) << 20);
    ck_assert_uint_eq(options.cache.list_memory_bytes, UINT64_C(1) << 30);
    ck_assert(options.allow_other && options.read_only);
    ck_assert_uint_eq(options.cache.uid, 1000);
    ck_assert_uint_eq(options.cache.gid, 1001);
    ck_assert_uint_eq(options.umask, 077);
    ck_assert_uint_eq(mount_options_mask(&options, false), 0137);
    ck_assert_uint_eq(mount_options_mask(&options, true), 027);
    ck_assert_int_eq(options.log_level, LOG_LEVEL_DEBUG);
    ck_assert_int_eq(options.passthrough, PASSTHROUGH_OFF);
    ck_assert_int_eq(options.incomplete, INCOMPLETE_SHOW);
    ck_assert_str_eq(options.staging, "*.tmp:tmp-*");
    ck_assert_uint_eq(options.connections, 5);
    ck_assert_int_eq(options.drain_timeout_ns, 9 * NS_PER_SEC);
    ck_assert_int_eq(options.mount_timeout_ns, 4 * NS_PER_SEC);
}
END_TEST

START_TEST(later_ones_win)
{
    ck_assert_int_eq(mount_options_parse(&options, "ro,uid=1,rw,uid=2,cache_dir=a", &op), 0);
    ck_assert_int_eq(mount_options_parse(&options, "cache_dir=b,ro=false,allow_other=no", &op),
                     0);
    ck_assert(!options.read_only && !options.allow_other);
    ck_assert_uint_eq(options.cache.uid, 2);
    ck_assert_str_eq(options.cache_dir, "b");
}
END_TEST

START_TEST(acls_are_on_where_others_get_in)
{
    static const struct {
        const char *text;
        bool on;
    } t[] = {{"rw", false},
             {"acl", true},
             {"noacl,acl", true},
             {"allow_other", true},
             {"allow_other,noacl", false},
             {"allow_other,acl,noacl", false},
             {"allow_other,acl=off", false}};

    for (size_t i = 0; i < ARRAY_SIZE(t); i++) {
        struct mount_options o;
        mount_options_init(&o);
        ck_assert_int_eq(mount_options_parse(&o, t[i].text, &op), 0);
        ck_assert_msg(mount_options_acl(&o) == t[i].on, "%s", t[i].text);
        mount_options_release(&o);
    }
    ck_assert_int_eq(mount_options_parse(&options, "noacl=on", &op), -EINVAL);
}
END_TEST

START_TEST(commas_can_be_escaped)
{
    ck_assert_int_eq(mount_options_parse(&options, "cache_dir=/a\\,b\\\\c,ro,,", &op), 0);
    ck_assert_str_eq(options.cache_dir, "/a,b\\c");
    ck_assert(options.read_only);
}
END_TEST

START_TEST(commas_can_be_quoted)
{
    ck_assert_int_eq(mount_options_parse(&options, "cache_dir=\"/a,b\",staging=x\"y,ro", &op),
                     0);
    ck_assert_str_eq(options.cache_dir, "/a,b");
    ck_assert_str_eq(options.staging, "x\"y");
    ck_assert(options.read_only);
}
END_TEST

/* A label goes to the kernel as it would from mount(8), where there is something that labels.
 */
START_TEST(a_label_needs_selinux)
{
    int err = mount_options_parse(&options, "context=\"u:r:t:s0:c1,c2\",ro", &op);

    if (access("/sys/fs/selinux/enforce", F_OK) == 0) {
        ck_assert_int_eq(err, 0);
        ck_assert_str_eq(options.kernel.data, "context=\"u:r:t:s0:c1\\,c2\"");
    } else {
        ck_assert_int_eq(err, -EINVAL);
        ck_assert_msg(strstr(op.why, "context: this kernel runs without SELinux") != NULL, "%s",
                      op.why);
    }
}
END_TEST

START_TEST(the_same_in_other_words_is_the_same)
{
    struct mount_options other;

    mount_options_init(&other);
    ck_assert_int_eq(mount_options_parse(&options,
                                         "cache_size=1GiB,settle=1s,allow_other,"
                                         "durability=store,region=a,cache_dir=/c",
                                         &op),
                     0);
    ck_assert_int_eq(mount_options_parse(&other,
                                         "cache_size=1024MiB,settle=1000ms,"
                                         "allow_other=yes,durability=cache,region=b",
                                         &op),
                     0);
    ck_assert(mount_options_same(&options, &other, "cache_size"));
    ck_assert(mount_options_same(&options, &other, "settle"));
    ck_assert(mount_options_same(&options, &other, "allow_other"));
    ck_assert(mount_options_same(&options, &other, "endpoint"));
    ck_assert(!mount_options_same(&options, &other, "durability"));
    ck_assert(!mount_options_same(&options, &other, "region"));
    ck_assert(!mount_options_same(&options, &other, "cache_dir"));
    mount_options_release(&other);
}
END_TEST

START_TEST(what_mount_carries_is_taken)
{
    ck_assert_int_eq(mount_options_parse(&options,
                                         "rw,noauto,_netdev,nofail,user,user=joe,defaults,"
                                         "noatime,relatime,comment=x,x-systemd.automount,"
                                         "default_permissions,uhelper=x,"
                                         "x-systemd.idle-timeout=60,nosuid,nodev,noexec",
                                         &op),
                     0);
    ck_assert_str_eq(options.kernel.data, "nosuid,nodev,noexec");
}
END_TEST

START_TEST(store_options_are_passed_on)
{
    const char *const *names = store_option_names();

    for (size_t i = 0; names[i]; i++) {
        for (size_t j = 0; j < i; j++) /* kinds of stores share some */
            ck_assert_str_ne(names[i], names[j]);
        ck_assert_int_eq(mount_options_set(&options, names[i], "v", &op), 0);
    }
    for (size_t i = 0; names[i]; i++)
        ck_assert_str_eq(settings_get(&options.store, names[i]), "v");
}
END_TEST

/* A value that each kind of field can have, and that what is not built has anyway. */
static const char *legal(const struct policy_field *f)
{
    static char time[FORMAT_TIME_MAX];
    const struct policy *data = policy_preset("data");

    switch (f->kind) {
    case POLICY_CHOICE:
        return f->choices[1];
    case POLICY_WORD:
        return f->built ? f->choices[1] : *policy_text(data, f);
    case POLICY_PATTERNS:
        return f->built ? "*.x:y-*" : *policy_text(data, f);
    case POLICY_TIME:
        return f->built ? "90s" : format_time(time, *policy_number(data, f));
    case POLICY_FLAG:
        return "no";
    default:
        return *policy_number(data, f) ? "1" : "0";
    }
}

START_TEST(every_field_of_a_policy_is_an_option)
{
    static const char *const of_all[] = {"staging", "settle", "durability"};

    for (size_t i = 0; i < policy_fields_n; i++) {
        const struct policy_field *f = &policy_fields[i];
        bool all = false;

        for (size_t k = 0; k < ARRAY_SIZE(of_all); k++)
            all = all || strcmp(f->name, of_all[k]) == 0;
        ck_assert_msg(mount_options_set(&options, f->name, legal(f), &op) == 0, "%s", op.why);
        ck_assert_int_eq(mount_options_is_policy_field(f->name), !all);
        ck_assert(!mount_options_is_stores(f->name));
        if (!all)
            ck_assert_str_eq(settings_get(&options.policy, f->name), legal(f));
    }
    ck_assert_uint_eq(options.policy.n, policy_fields_n - ARRAY_SIZE(of_all));
    ck_assert(!mount_options_is_policy_field("extends") &&
              !mount_options_is_policy_field("ro"));
}
END_TEST

START_TEST(a_flag_of_a_policy_needs_no_value_and_patterns_may_be_none)
{
    ck_assert_int_eq(mount_options_parse(&options, "conflict=last,conflict=keep,logs=", &op),
                     0);
    ck_assert_str_eq(settings_get(&options.policy, "conflict"), "keep");
    ck_assert_str_eq(settings_get(&options.policy, "logs"), "");
    ck_assert_int_eq(mount_options_parse(&options, "del_locks", &op), 0);
    ck_assert_str_eq(settings_get(&options.policy, "del_locks"), "true");
}
END_TEST

static bool same_field(const char *a, const char *b, const char *name)
{
    struct mount_options of_a, of_b;

    mount_options_init(&of_a);
    mount_options_init(&of_b);
    ck_assert_int_eq(mount_options_parse(&of_a, a, &op), 0);
    ck_assert_int_eq(mount_options_parse(&of_b, b, &op), 0);
    bool same = mount_options_same(&of_a, &of_b, name);
    mount_options_release(&of_a);
    mount_options_release(&of_b);
    return same;
}

START_TEST(the_same_of_a_policy_in_other_words_is_the_same)
{
    ck_assert(same_field("interval=1s", "interval=1000ms,conflict=last", "interval"));
    ck_assert(same_field("conflict=last,conflict=keep", "", "conflict"));
    ck_assert(same_field("", "del_locks=no,unit_idle=10000ms,expect=1", "del_locks"));
    ck_assert(same_field("logs=a:b", "logs=a:b", "logs"));
    ck_assert(!same_field("logs=", "", "logs"));
    ck_assert(!same_field("conflict=last", "", "conflict"));
    ck_assert(!same_field("", "upload=interval", "upload"));
    ck_assert(!same_field("interval=1s", "upload_interval=1s", "interval"));
}
END_TEST

START_TEST(defaults_are_sane)
{
    ck_assert_uint_eq(mount_options_mask(&options, false), 022);
    ck_assert_uint_eq(mount_options_mask(&options, true), 022);
    ck_assert_int_eq(options.durability, DURABILITY_CACHE);
    ck_assert_int_eq(options.passthrough, PASSTHROUGH_AUTO);
    ck_assert_int_eq(options.incomplete, INCOMPLETE_HIDE);
    ck_assert_uint_eq(options.cache.uid, getuid());
    ck_assert_uint_gt(options.cache.upload_jobs, 0);
    ck_assert_uint_gt(options.cache.download_jobs, 0);
    ck_assert_int_gt(options.cache.store_timeout_ns, 0);
    ck_assert(!options.read_only && !options.allow_other);
    ck_assert_ptr_null(options.kernel.data);
}
END_TEST

/* What is refused, and words that the message must hold. */
static const struct {
    const char *list;
    const char *says;
} refused[] = {
    {"cache_sise=1G", "\"cache_sise\", did you mean \"cache_size\""},
    {"durabilty=store", "did you mean \"durability\""},
    {"upload-jobs=3", "did you mean \"upload_jobs\""},
    {"zzzzzzzzzzzz", "unknown option \"zzzzzzzzzzzz\""},
    {"cache_size", "cache_size needs a value"},
    {"cache_size=", "cache_size needs a value"},
    {"cache_size=big", "cache_size=big: expected a size"},
    {"attr_timeout=-1", "attr_timeout=-1: expected a time"},
    {"upload_jobs=0", "from 1 to 1024"},
    {"upload_jobs=2000", "from 1 to 1024"},
    {"upload_jobs=3x", "from 1 to 1024"},
    {"uid=root", "uid=root: expected a numeric id"},
    {"uid=4294967295", "expected a numeric id"},
    {"umask=9", "umask=9: expected an octal"},
    {"umask=1777", "expected an octal"},
    {"dmask=rwx", "dmask=rwx: expected an octal"},
    {"ro=maybe", "ro=maybe: expected true or false"},
    {"durability=disk", "durability=disk: expected cache, store"},
    {"log_level=loud", "expected error, warn, info, debug"},
    {"rw=false", "rw=false: expected no value"},
    {"ro,=5", "unknown option \"\""},
    {"conflct=last", "\"conflct\", did you mean \"conflict\"?"},
    {"conflict", "option conflict needs a value (keep, last)"},
    {"conflict=", "option conflict=: \"conflict\" in a policy must be one of keep, last"},
    {"upload=often,upload=close", "option upload=often: \"upload\" in a policy must be one of "
                                  "close, rename, interval, never"},
    {"interval=soon", "option interval=soon: \"interval\" in a policy must be a time"},
    {"logs=a/b", "option logs=a/b: \"logs\" in a policy: a pattern is of one name"},
    {"logs=\xff", "it must be UTF-8"},
    {"keep_last=2", "option keep_last=2: \"keep_last\" of a policy is not built yet"},
    {"unit=half", "option unit=half: \"unit\" in a policy must be one of none, file"},
    {"lock_ttl=0", "option lock_ttl=0: \"lock_ttl\" in a policy must be more than 0"},
    {"expect=2", "option expect=2: \"expect\" of a policy is not built yet"},
    {"expect=env", "option expect=env: \"expect\": \"env\" of a policy is not built yet"},
    {"expect=1x", "option expect=1x: \"expect\" in a policy must be an integer from 1"},
    {"keep_last=-1", "must be an integer from 0"},
    {"keep_last=99999999999999999999", "must be an integer from 0"},
    {"extends=logs", "unknown option \"extends\""},
};

START_TEST(bad_option_is_refused)
{
    ck_assert_int_eq(mount_options_parse(&options, refused[_i].list, &op), -EINVAL);
    ck_assert_msg(strstr(op.why, refused[_i].says) != NULL, "says: %s", op.why);
}
END_TEST

START_TEST(unknown_options_do_not_show_their_value)
{
    ck_assert_int_eq(mount_options_parse(&options, "secret_acces_kay=hunter2", &op), -EINVAL);
    ck_assert_ptr_null(strstr(op.why, "hunter2"));
}
END_TEST

START_TEST(staging_is_split)
{
    char text[] = "*.tmp::tmp-*:";
    const char **list = mount_options_split_staging(text);

    ck_assert_str_eq(list[0], "*.tmp");
    ck_assert_str_eq(list[1], "tmp-*");
    ck_assert_ptr_null(list[2]);
    free(list);
}
END_TEST

static const struct {
    const char *a, *b;
    unsigned distance;
} distances[] = {
    {"", "", 0},       {"abc", "abc", 0}, {"abc", "", 3},           {"", "ab", 2},
    {"abc", "abd", 1}, {"abc", "acb", 1}, {"kitten", "sitting", 3}, {"mount", "moutn", 1},
    {"ca", "abc", 3},
};

START_TEST(distance_is_right)
{
    ck_assert_uint_eq(edit_distance(distances[_i].a, distances[_i].b), distances[_i].distance);
    ck_assert_uint_eq(edit_distance(distances[_i].b, distances[_i].a), distances[_i].distance);
}
END_TEST

START_TEST(long_words_are_far)
{
    char word[200];

    memset(word, 'a', sizeof(word) - 1);
    word[sizeof(word) - 1] = '\0';
    ck_assert_uint_eq(edit_distance(word, "mount"), UINT_MAX);
}
END_TEST

static const char *const paths[] = {
    "", "a/b", "a b/%41", "\xff\xfe/x", "new\nline", "\"q\\\"", "日本/\x7f", "..a/b..", "..."};

START_TEST(path_survives_the_socket)
{
    auto_free char *text = control_encode_path(paths[_i]);
    auto_free char *back = NULL;
    auto_json json_t *j = NULL;

    ck_assert_ptr_nonnull(text);
    j = json_string(text);
    ck_assert_msg(j != NULL, "not UTF-8: %s", text);
    ck_assert_int_eq(control_decode_path(text, &back), 0);
    ck_assert_str_eq(back, paths[_i]);
}
END_TEST

static const char *const bad_paths[] = {"..",  "a/../b", "a/..", "%2e%2E/x", "%",
                                        "a%4", "%zz",    "%00",  "a%00b"};

START_TEST(bad_path_is_refused)
{
    char *back = NULL;

    ck_assert_int_eq(control_decode_path(bad_paths[_i], &back), -EINVAL);
    ck_assert_ptr_null(back);
}
END_TEST

START_TEST(messages_are_taken_apart)
{
    static const char text[] = "{\"a\": 1}\n{\"b\": 2}\nnonsense\n[1]\n{\"c\"";
    struct control_reader reader;
    json_t *j;
    int fds[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    ck_assert_int_eq(write(fds[0], text, strlen(text)), (ssize_t)strlen(text));
    ck_assert_int_eq(close(fds[0]), 0);
    control_reader_init(&reader, fds[1], 4096);
    ck_assert_int_eq(control_receive(&reader, &j), 0);
    ck_assert_int_eq(json_integer_value(json_object_get(j, "a")), 1);
    json_decref(j);
    ck_assert_int_eq(control_receive(&reader, &j), 0);
    ck_assert_int_eq(json_integer_value(json_object_get(j, "b")), 2);
    json_decref(j);
    ck_assert_int_eq(control_receive(&reader, &j), -EPROTO);
    ck_assert_int_eq(control_receive(&reader, &j), -EPROTO);
    ck_assert_int_eq(control_receive(&reader, &j), -ENODATA);
    control_reader_release(&reader);
    ck_assert_int_eq(close(fds[1]), 0);
}
END_TEST

START_TEST(long_message_is_refused)
{
    struct control_reader reader;
    char text[512];
    json_t *j;
    int fds[2];

    memset(text, ' ', sizeof(text));
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    ck_assert_int_eq(write(fds[0], text, sizeof(text)), (ssize_t)sizeof(text));
    control_reader_init(&reader, fds[1], 256);
    ck_assert_int_eq(control_receive(&reader, &j), -EFBIG);
    control_reader_release(&reader);
    ck_assert_int_eq(close(fds[0]) | close(fds[1]), 0);
}
END_TEST

START_TEST(bad_utf8_becomes_text)
{
    auto_json json_t *j = control_text("a\xff\nb");

    ck_assert_str_eq(json_string_value(j), "a\xEF\xBF\xBD\nb");
}
END_TEST

START_TEST(within_is_by_component)
{
    ck_assert(mountpoint_path_within("/a/b", "/a"));
    ck_assert(mountpoint_path_within("/a", "/a"));
    ck_assert(mountpoint_path_within("/a/b", "/a/"));
    ck_assert(mountpoint_path_within("/a", "/"));
    ck_assert(!mountpoint_path_within("/ab", "/a"));
    ck_assert(!mountpoint_path_within("/", "/a"));
}
END_TEST

static const struct {
    int err;
    enum exit_code code, of_wait;
} codes[] = {
    {-EBUSY, EXIT_BUSY, EXIT_NOT_YET},           {-ENOENT, EXIT_NOT_FOUND, EXIT_NOT_FOUND},
    {-ENXIO, EXIT_NOT_FOUND, EXIT_NOT_FOUND},    {-EACCES, EXIT_REFUSED, EXIT_REFUSED},
    {-EPERM, EXIT_REFUSED, EXIT_REFUSED},        {-ETIMEDOUT, EXIT_NETWORK, EXIT_NOT_YET},
    {-EHOSTUNREACH, EXIT_NETWORK, EXIT_NETWORK}, {-ETXTBSY, EXIT_FAILED, EXIT_NOT_YET},
    {-ENOSPC, EXIT_FAILED, EXIT_NOT_YET},
};

START_TEST(causes_have_exit_codes)
{
    ck_assert_int_eq(command_exit_code(codes[_i].err), codes[_i].code);
    ck_assert_int_eq(command_exit_code_of_wait(codes[_i].err), codes[_i].of_wait);
}
END_TEST

static TCase *options_case(void)
{
    TCase *tc = tcase_create("options");

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, every_kind_is_set);
    tcase_add_test(tc, later_ones_win);
    tcase_add_test(tc, acls_are_on_where_others_get_in);
    tcase_add_test(tc, commas_can_be_escaped);
    tcase_add_test(tc, commas_can_be_quoted);
    tcase_add_test(tc, a_label_needs_selinux);
    tcase_add_test(tc, the_same_in_other_words_is_the_same);
    tcase_add_test(tc, what_mount_carries_is_taken);
    tcase_add_test(tc, store_options_are_passed_on);
    tcase_add_test(tc, every_field_of_a_policy_is_an_option);
    tcase_add_test(tc, a_flag_of_a_policy_needs_no_value_and_patterns_may_be_none);
    tcase_add_test(tc, the_same_of_a_policy_in_other_words_is_the_same);
    tcase_add_test(tc, defaults_are_sane);
    tcase_add_loop_test(tc, bad_option_is_refused, 0, ARRAY_SIZE(refused));
    tcase_add_test(tc, unknown_options_do_not_show_their_value);
    tcase_add_test(tc, staging_is_split);
    return tc;
}

static TCase *texts_case(void)
{
    TCase *tc = tcase_create("texts");

    tcase_add_loop_test(tc, distance_is_right, 0, ARRAY_SIZE(distances));
    tcase_add_test(tc, long_words_are_far);
    tcase_add_loop_test(tc, path_survives_the_socket, 0, ARRAY_SIZE(paths));
    tcase_add_loop_test(tc, bad_path_is_refused, 0, ARRAY_SIZE(bad_paths));
    tcase_add_test(tc, messages_are_taken_apart);
    tcase_add_test(tc, long_message_is_refused);
    tcase_add_test(tc, bad_utf8_becomes_text);
    tcase_add_test(tc, within_is_by_component);
    tcase_add_loop_test(tc, causes_have_exit_codes, 0, ARRAY_SIZE(codes));
    return tc;
}

int main(void)
{
    Suite *suite = suite_create("options");

    suite_add_tcase(suite, options_case());
    suite_add_tcase(suite, texts_case());
    return suite_run(suite);
}
