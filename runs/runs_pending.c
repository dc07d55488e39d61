/* Replaced by the files of this folder. */
#include "runs/config.h"
extern int runs_pending_;
int runs_pending_;
