/* The contract over a store that is made of several: where a route leads to one directory of a
 * store, through captures with a codec, beside another store, and to a folder. */
#include "tests/contract/contract.c"

#include "backends/drivers.h"
#include "backends/layers/layers.h"
#include "backends/routed/routed.h"
#include "tests/lib/routed.h"
#include "tests/lib/temp_dir.h"

#include <limits.h>

static char root[PATH_MAX];

struct shape {
    const char *urls[3]; /* "file": the test's folder */
    struct test_route routes[4];
};

static const struct shape shapes[] = {
    {{"mem:routed-prefix"}, {{"**", "some/prefix/**", 0}}},
    {{"mem:routed-captures"}, {{"runs/{run}/ck/**", "all/x{run:b32}/in/**", 0}}},
    {{"mem:routed-one", "mem:routed-two"}, {{"a/**", "**", 0}, {"**", "**", 1}}},
    {{"mem:routed-three", "mem:routed-four"},
     {{"runs/{run}/logs/**", "{run}/**", 0}, {"runs/{run}/**", "data/{run}/**", 1}}},
    {{"mem:routed-s3?s3"}, {{"a/{x}/**", "{x:hex}/**", 0}}},
    {{"file"}, {{"runs/{run}/**", "deep/er/{run}/**", 0}}},
    {{"file", "mem:routed-beside"}, {{"runs/{run}/**", "{run}/**", 1}, {"**", "**", 0}}},
};

/* Which shape, by the fixture's argument. */
static const struct shape *shape_of(const struct contract_fixture *f)
{
    return &shapes[f->arg[0] - '0'];
}

static struct store *open_leaf(const char *url)
{
    struct store *s = NULL;
    struct op op;
    int r;

    op_init(&op, PATIENCE);
    if (!root[0])
        temp_dir_make(root, sizeof(root));
    if (strcmp(url, "file") == 0)
        r = local_store_new(root, NULL, &op, &s);
    else
        r = mem_store_new(url, NULL, &op, &s);
    ck_assert_msg(r == 0, "%s: %d %s", url, r, op.why);
    return s;
}

/* The table outlives the store: one for each shape is enough. */
static struct routes tables[ARRAY_SIZE(shapes)];

static struct store *open_routed(const struct contract_fixture *f)
{
    const struct shape *shape = shape_of(f);
    struct routes *routes = &tables[shape - shapes];
    struct store *leaves[3], *s;
    size_t n = 0;

    for (; n < 3 && shape->urls[n]; n++)
        leaves[n] = open_leaf(shape->urls[n]);
    if (!routes->n)
        test_routes(routes, shape->routes);
    s = test_routed(routes, leaves, n);
    if (f->layer) {
        s = f->layer(s);
        ck_assert_ptr_nonnull(s);
    }
    return s;
}

static struct store *add_retry(struct store *next)
{
    return layer_retry_new(next, NULL);
}

#define MEM .page_names = 600, .flat = true, .any_name = true, .routed = true, .state = "@a"
#define DIR .page_names = 100, .any_name = true, .routed = true, .state = "@a"

static const struct contract_fixture fixtures[] = {
    {"prefix", open_routed, MEM, .arg = "0"},
    {"captures", open_routed, MEM, .arg = "1", .in = "runs/some run/ck"},
    {"first of two", open_routed, MEM, .arg = "2", .in = "a"},
    {"second of two", open_routed, MEM, .arg = "2"},
    {"below a union", open_routed, MEM, .arg = "3", .in = "runs/x"},
    {"inside of a union", open_routed, MEM, .arg = "3", .in = "runs/x/logs"},
    {"like S3", open_routed, MEM, .arg = "4", .in = "a/b"},
    {"inside of a layer", open_routed, MEM, .arg = "0", .layer = add_retry},
    {"folder", open_routed, DIR, .arg = "5", .in = "runs/one"},
    {"folder beside mem", open_routed, DIR, .arg = "6"},
    {"mem beside a folder", open_routed, MEM, .arg = "6", .in = "runs/one"},
    {"state of the second", open_routed, .page_names = 600, .flat = true, .any_name = true,
     .routed = true, .arg = "6", .in = "runs/one", .state = "@b"},
};

int main(void)
{
    int status = contract_main("contract routed", fixtures, ARRAY_SIZE(fixtures));
    for (size_t i = 0; i < ARRAY_SIZE(tables); i++)
        routes_release(&tables[i]);
    return status;
}
