/* cli/report.c, cli/command.c: what a daemon says comes from names, from the store, or from
 * another user's program, and must not reach the terminal as it is. */
#include "cli/report.h"

#include "cli/command.h"
#include "common/mem.h"
#include "tests/lib/suite.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

/* ESC, CSI in its UTF-8 form, a line's end, an override of the direction. */
#define EVIL "\x1b]0;x\x07\xc2\x9b\n\xe2\x80\xae"

static json_t *hostile_status(void)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:{s:s}, s:{s:s, s:s}, s:{s:s, s:s},"
                     " s:[{s:s, s:s, s:s, s:s, s:s, s:s}],"
                     " s:{s:s, s:s, s:s, s:s, s:s}}",
                     "store", EVIL, "mountpoint", EVIL, "state", EVIL, "cache_dir", EVIL,
                     "cache", "trouble", EVIL, "last_error", "errno", EVIL, "text", EVIL,
                     "last_read_error", "errno", EVIL, "text", EVIL, "files", "kind", EVIL,
                     "path", EVIL, "path2", EVIL, "state", EVIL, "error", EVIL, "store", EVIL,
                     "asked", "path", EVIL, "state", EVIL, "store", EVIL, "route", EVIL,
                     "policy", EVIL);
}

START_TEST(a_status_commands_no_terminal)
{
    json_t *status = hostile_status();
    auto_free char *text = NULL;
    FILE *terminal = stdout;
    size_t len;

    ck_assert_ptr_nonnull(status);
    stdout = open_memstream(&text, &len);
    report_status(status);
    report_files(status);
    (void)fclose(stdout);
    stdout = terminal;
    json_decref(status);
    ck_assert_ptr_null(strpbrk(text, "\x1b\x07"));
    ck_assert_ptr_null(strstr(text, "\xc2\x9b"));
    ck_assert_ptr_null(strstr(text, "\xe2\x80\xae"));
    ck_assert_ptr_nonnull(strstr(text, "\\x1b]0;x\\x07\\xc2\\x9b\\x0a\\xe2\\x80\\xae"));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("report");
    TCase *t = tcase_create("report");

    tcase_add_test(t, a_status_commands_no_terminal);
    suite_add_tcase(s, t);
    return suite_run(s);
}
