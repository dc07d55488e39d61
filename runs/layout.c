/* The tables of the layouts. A new layout is two tables and a line here. */
#include "runs/layout.h"

#include "common/mem.h"

#define DATA                                                                                   \
    {                                                                                          \
        "data", "", false                                                                      \
    }
#define THE_REST                                                                               \
    {                                                                                          \
        "data", "**", "/**", "data", 0, 0                                                      \
    }
#define RUNS_ROUTE(at, policy)                                                                 \
    {                                                                                          \
        "runs", "runs/{run}" at, "/{run}" at, policy, 0, LAYOUT_UNSAVED                        \
    }
#define UNSAVED_RUNS                                                                           \
    {                                                                                          \
        "runs", "runs/**", "/**", "scratch", LAYOUT_UNSAVED, 0                                 \
    }
/* Horovod writes a data set into a directory, into several that are numbered, or into files. */
#define DATASET(x)                                                                             \
    {x, "intermediate_" x "_data/**", "/**", "data", 0, 0},                                    \
        {x, "intermediate_" x "_data{x}/**", "{x}/**", "data", 0, 0},                          \
    {                                                                                          \
        x, "intermediate_" x "_data{x}", "{x}", "data", 0, 0                                   \
    }

static const struct layout_category data_only[] = {DATA, {0}};

static const struct layout_category runs_categories[] = {{"checkpoint", "runs", false},
                                                         {"logs", "runs", false},
                                                         {"metadata", "runs", false},
                                                         {"tracker", "", true},
                                                         DATA,
                                                         {0}};

static const struct layout_category horovod_categories[] = {
    {"runs", "runs", false},
    {"train", "intermediate_train_data", false},
    {"val", "intermediate_val_data", false},
    {"test", "intermediate_test_data", false},
    DATA,
    {0}};

static const struct layout_category torchx_categories[] = {{"tracker", "", false}, {0}};

static const struct layout_route plain[] = {THE_REST, {0}};

static const struct layout_route runs[] = {
    {"checkpoint", "runs/{run}/checkpoint/**", "/{run}/checkpoint/**", "checkpoint", 0, 0},
    {"logs", "runs/{run}/logs/**", "/{run}/logs/**", "logs", 0, 0},
    {"metadata", "runs/{run}/metadata/**", "/{run}/metadata/**", "metadata", 0, LAYOUT_TRACKER},
    {"tracker", "runs/{run}/metadata/**", "/{run:b32}/**", "metadata", LAYOUT_TRACKER, 0},
    {"data", "runs/{run}/**", "/runs/{run}/**", "data", 0, 0},
    THE_REST,
    {0}};

static const struct layout_route horovod[] = {DATASET("train"),
                                              DATASET("val"),
                                              DATASET("test"),
                                              RUNS_ROUTE("/checkpoint.h5", "checkpoint"),
                                              RUNS_ROUTE("/checkpoint/**", "checkpoint"),
                                              RUNS_ROUTE("/logs/**", "logs"),
                                              RUNS_ROUTE("/**", "checkpoint"),
                                              UNSAVED_RUNS,
                                              THE_REST,
                                              {0}};

static const struct layout_route dbfs[] = {DATASET("train"),
                                           DATASET("val"),
                                           DATASET("test"),
                                           RUNS_ROUTE("/checkpoint.h5", "checkpoint"),
                                           RUNS_ROUTE("/checkpoint/**", "checkpoint"),
                                           RUNS_ROUTE("/logs/**", "logs"),
                                           RUNS_ROUTE("/**", "dbfs"),
                                           UNSAVED_RUNS,
                                           THE_REST,
                                           {0}};

static const struct layout_route ray[] = {{"data", "**", "/**", "ray", 0, 0}, {0}};
static const struct layout_route adaptdl[] = {{"data", "**", "/**", "adaptdl", 0, 0}, {0}};
static const struct layout_route tfos[] = {{"data", "**", "/**", "tfos", 0, 0}, {0}};

static const struct layout_route torchx[] = {
    {"tracker", "runs/{run}/**", "/{run:b32}/**", "metadata", 0, LAYOUT_RAW},
    {"tracker", "**", "/**", "metadata", LAYOUT_RAW, 0},
    {0}};

static const struct layout layouts[] = {
    {"plain", data_only, plain, 0},
    {"runs", runs_categories, runs, LAYOUT_TRACKER},
    {"horovod", horovod_categories, horovod, LAYOUT_UNSAVED},
    {"dbfs", horovod_categories, dbfs, LAYOUT_UNSAVED},
    {"ray", data_only, ray, 0},
    {"adaptdl", data_only, adaptdl, 0},
    {"torchx", torchx_categories, torchx, LAYOUT_RAW},
    {"tfos", data_only, tfos, 0},
};

const struct layout *layout_at(size_t i)
{
    return i < ARRAY_SIZE(layouts) ? &layouts[i] : NULL;
}

const struct layout *layout_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(layouts); i++)
        if (strcmp(layouts[i].name, name) == 0)
            return &layouts[i];
    return NULL;
}

size_t layout_categories_n(const struct layout *l)
{
    size_t n = 0;

    while (l->categories[n].name)
        n++;
    return n;
}

size_t layout_category(const struct layout *l, const char *name)
{
    for (size_t i = 0; l->categories[i].name; i++)
        if (strcmp(l->categories[i].name, name) == 0)
            return i;
    return LAYOUT_CATEGORIES_MAX;
}

bool layout_route_counts(const struct layout_route *route, unsigned choices)
{
    return (choices & route->with) == route->with && !(choices & route->without);
}
