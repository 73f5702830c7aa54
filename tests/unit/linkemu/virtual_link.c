/* Links in virtual time: the emulator's own shaper, lines and schedule, driven from standard input.
 *
 *   set T key=value ...     packet T BYTES     drain T     backlog T     use T LINK     (T in nanoseconds, never falling)
 *
 * Answers one line each: ok | refused SENTENCE | VERDICT SERIALIZED DUE | out ID:DUE ... | BYTES. Packets are numbered
 * from 0. There are eight links; all but `drain` concern the one last named by `use`. The first argument is the seed.
 */
#include "linkemu.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUM_LINKS 8

static struct pool pool;
static struct pair pairs[NUM_LINKS], *used = pairs;
static struct pair *heap[NUM_LINKS];
static struct schedule schedule = {.heap = heap};

static void set(char *rest, uint64_t now_ns)
{
    struct shape shape = used->shaper.shape;
    for (char *word = strtok(rest, " "); word; word = strtok(NULL, " ")) {
        char *value = strchr(word, '=');
        uint64_t number;
        if (value)
            *value++ = 0;
        if (!value || !parse_number(value, &number) || !shape_set_key(&shape, word, number)) {
            printf("refused the word %s\n", word);
            return;
        }
    }
    const char *problem = shape_problem(&shape);
    if (!problem)
        line_reshape(&pool, &schedule, used, &shape, now_ns);
    printf(problem ? "refused %s\n" : "ok\n", problem);
}

static void packet(uint32_t bytes, uint64_t now_ns)
{
    static uint32_t number;
    static const char *const names[] = {"passed", "lost", "policed", "queue_full"};
    struct timing timing = {0};
    enum verdict verdict = shaper_admit(&used->shaper, bytes, now_ns, &timing);
    if (verdict == PASSED) {
        int32_t index = pool_take(&pool);
        pool.packets[index].timing = timing;
        memcpy(pool_ip(&pool, index), &number, sizeof number);
        line_insert(&pool, &schedule, used, index);
    }
    number++;
    printf("%s %" PRIu64 " %" PRIu64 "\n", names[verdict], timing.serialized_ns, timing.due_ns);
}

static void drain(uint64_t now_ns)
{
    printf("out");
    while (schedule_next_ns(&schedule, &pool) <= now_ns) {
        int32_t index = line_pop(&pool, &schedule, schedule.heap[0]);
        uint32_t number;
        memcpy(&number, pool_ip(&pool, index), sizeof number);
        printf(" %" PRIu32 ":%" PRIu64, number, pool.packets[index].timing.due_ns);
        pool_give(&pool, index);
    }
    printf("\n");
}

int main(int count, char **arguments)
{
    char line[LINE_BYTES], verb[16];
    if (count != 2 || !pool_open(&pool, 1 << 20, 64))
        return 1;
    for (unsigned i = 0; i < NUM_LINKS; i++) {
        pairs[i].head = pairs[i].tail = NO_PACKET;
        pairs[i].heap_index = -1;
        shaper_init(&pairs[i].shaper, strtoull(arguments[1], NULL, 10), 0);
    }
    while (fgets(line, sizeof line, stdin)) {
        uint64_t now_ns;
        int at = 0;
        line[strcspn(line, "\n")] = 0;
        if (sscanf(line, "%15s %" SCNu64 " %n", verb, &now_ns, &at) != 2)
            return 1;
        if (strcmp(verb, "set") == 0)
            set(line + at, now_ns);
        else if (strcmp(verb, "packet") == 0)
            packet((uint32_t)atoi(line + at), now_ns);
        else if (strcmp(verb, "drain") == 0)
            drain(now_ns);
        else if (strcmp(verb, "use") == 0)
            printf("ok %d\n", (int)((used = &pairs[atoi(line + at) % NUM_LINKS]) - pairs));
        else
            printf("%" PRIu64 "\n", shaper_backlog_bytes(&used->shaper, now_ns));
    }
    return 0;
}
