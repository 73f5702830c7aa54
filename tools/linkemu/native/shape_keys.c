/* The settings of a shape by name: the words of the `set` command and of the `shapes` report. */
#include "linkemu.h"

#include <string.h>

static const struct { const char *name; size_t offset; } SHAPE_KEYS[] = {
#define KEY(field) {#field, offsetof(struct shape, field)}
    KEY(rate_bps), KEY(delay_us), KEY(jitter_us), KEY(reorder), KEY(loss_ppm), KEY(burst_enter_ppm),
    KEY(burst_exit_ppm), KEY(burst_loss_ppm), KEY(queue_bytes), KEY(policer_bps), KEY(policer_burst_bytes),
    KEY(cross_bps), KEY(cross_on_us), KEY(cross_off_us),
#undef KEY
};
#define NUM_SHAPE_KEYS (sizeof SHAPE_KEYS / sizeof SHAPE_KEYS[0])

bool shape_set_key(struct shape *shape, const char *key, uint64_t value)
{
    for (size_t i = 0; i < NUM_SHAPE_KEYS; i++) {
        if (strcmp(SHAPE_KEYS[i].name, key) == 0) {
            memcpy((char *)shape + SHAPE_KEYS[i].offset, &value, sizeof value);
            return true;
        }
    }
    return false;
}

void shape_print(const struct shape *shape, struct text *text)
{
    for (size_t i = 0; i < NUM_SHAPE_KEYS; i++) {
        uint64_t value;
        memcpy(&value, (const char *)shape + SHAPE_KEYS[i].offset, sizeof value);
        text_add(text, ",\"%s\":%llu", SHAPE_KEYS[i].name, (unsigned long long)value);
    }
}
