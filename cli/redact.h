/* Texts for people that quote what somebody typed. Any thread. */
#ifndef RUNFS_CLI_REDACT_H
#define RUNFS_CLI_REDACT_H

/* The text with each word of it that is a URL as store_url_redact() shows it: a command that
 * takes no URL says which word it can't use, too. Heap; NULL without memory. */
char *redact_words(const char *text);

#endif
