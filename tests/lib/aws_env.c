/* The environment without what AWS's tools read from it, and without what files made here would
 * be refused for. */
#include "tests/lib/aws_env.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void aws_clear_environment(void)
{
    for (char **at = environ; *at;) {
        char name[128];
        size_t len = strcspn(*at, "=");

        if (strncmp(*at, "AWS_", 4) == 0 && len < sizeof(name)) {
            memcpy(name, *at, len);
            name[len] = '\0';
            unsetenv(name);
            at = environ;
        } else {
            at++;
        }
    }
    setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    (void)umask(022);
}
