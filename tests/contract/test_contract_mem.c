/* The contract over the store in memory, bare and inside every layer. */
#include "tests/contract/contract.c"

#include "backends/drivers.h"
#include "backends/layers/fault.h"
#include "backends/layers/layers.h"

static struct store *open_mem(const struct contract_fixture *f)
{
    struct store *s = NULL;
    struct op op;

    op_init(&op, PATIENCE);
    ck_assert_int_eq(mem_store_new(f->arg, NULL, &op, &s), 0);
    if (f->layer) {
        s = f->layer(s);
        ck_assert_ptr_nonnull(s);
    }
    return s;
}

/* The whole assembly. */
static struct store *open_url(const struct contract_fixture *f)
{
    struct store *s = NULL;
    struct op op;

    op_init(&op, PATIENCE);
    ck_assert_int_eq(store_open(f->arg, NULL, &op, &s), 0);
    return s;
}

static struct store *add_retry(struct store *next)
{
    return layer_retry_new(next, NULL);
}

static struct store *add_limit(struct store *next)
{
    return layer_limit_new(next, 1);
}

#define MEM .page_names = 600, .flat = true, .any_name = true

static const struct contract_fixture fixtures[] = {
    {"mem", open_mem, MEM, .arg = "mem:bare"},
    {"mem like S3", open_mem, MEM, .arg = "mem:s3?s3"},
    {"retry", open_mem, MEM, .arg = "mem:retry", .layer = add_retry},
    {"limit", open_mem, MEM, .arg = "mem:limit", .layer = add_limit},
    {"stats", open_mem, MEM, .arg = "mem:stats", .layer = layer_stats_new},
    {"trace", open_mem, MEM, .arg = "mem:trace", .layer = layer_trace_new},
    {"fault", open_mem, MEM, .arg = "mem:fault", .layer = layer_fault_new},
    {"all layers", open_url, MEM, .arg = "mem:all"},
};

int main(void)
{
    return contract_main("contract mem", fixtures, ARRAY_SIZE(fixtures));
}
