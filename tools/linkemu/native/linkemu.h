/* The nouns of the link emulator, shared by its files.
 *
 * A *port* is where one region is attached. A *pair* is an ordered pair of ports; it has a *shape* (what the link does
 * to packets), the state of that shape, and a *line*: the packets queued and in flight, in the order of their departure.
 * The *schedule* knows which pair departs next. Everything lives in one thread and one `struct emulator`.
 *
 * Who may know what: shaper.c knows neither packets' bytes nor sockets (it is tested in virtual time); port files know
 * no shapes; command.c is the only file that reads text from outside.
 */
#ifndef LINKEMU_H
#define LINKEMU_H

#include <net/if.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAX_PORTS 32
#define MAX_ROUTES 256
#define NAME_BYTES 32           /* with the final zero */
#define PATH_BYTES 256
#define MAC_BYTES 6
#define ETHERNET_BYTES 14
#define BATCH_PACKETS 64        /* packets per sendmmsg */
#define ERROR_BYTES 256
#define LATE_BUCKETS 176
#define NS_PER_US 1000ull
#define NS_PER_MS 1000000ull
#define NS_PER_S 1000000000ull
#define NEVER UINT64_MAX
#define NO_PACKET (-1)

/* ---- base.c: clock, random numbers, growing text, lateness ---- */

struct rng { uint64_t state; };

struct text {
    char *data;
    size_t used, capacity;
    bool failed;                /* out of memory: the text is not to be believed */
};

struct lateness {
    uint64_t count, sum_ns, max_ns, over_1ms;
    uint32_t bucket[LATE_BUCKETS];
};

uint64_t clock_ns(void);
uint64_t wall_clock_ns(void);
void rng_seed(struct rng *rng, uint64_t seed);
uint64_t rng_next(struct rng *rng);
bool rng_chance_ppm(struct rng *rng, uint32_t ppm);
uint64_t rng_below(struct rng *rng, uint64_t limit);
void text_add(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void lateness_note(struct lateness *late, uint64_t late_ns);
void lateness_merge(struct lateness *into, const struct lateness *from);
uint64_t lateness_quantile_us(const struct lateness *late, unsigned per_mille);

/* ---- shaper.c: what a link does to packets, in time alone ---- */

struct shape {
    uint64_t rate_bps;          /* IP bytes; 0 = as fast as the machine goes */
    uint64_t delay_us, jitter_us;
    uint64_t reorder;           /* 1: jitter is drawn per packet and may overtake */
    uint64_t loss_ppm;
    uint64_t burst_enter_ppm, burst_exit_ppm, burst_loss_ppm;   /* Gilbert-Elliott, per packet */
    uint64_t queue_bytes;       /* 0 = about one bandwidth-delay product */
    uint64_t policer_bps, policer_burst_bytes;                  /* 0 = no policer */
    uint64_t cross_bps, cross_on_us, cross_off_us;              /* 0 = none; on/off 0 = constant */
};

enum verdict { PASSED, LOST, POLICED, QUEUE_FULL };

struct timing {
    uint64_t serialized_ns;     /* the last bit has left the queue */
    uint64_t due_ns;            /* the last bit is at the far end */
};

struct shaper {
    struct shape shape;
    uint64_t busy_ns;           /* the sending end is occupied until then */
    uint64_t busy_remainder;    /* what integer division left over, so that the rate is exact */
    uint64_t last_due_ns;
    uint64_t police_ns;         /* when the policer's bucket was last filled */
    double police_tokens;
    uint64_t cross_ns;          /* cross traffic is accounted until then */
    uint64_t cross_epoch_ns;    /* where its on/off square wave starts */
    uint64_t knot_ns, knot_from_ns, knot_to_ns;                 /* the wandering jitter: between two drawn values */
    bool in_burst;
    struct rng loss_rng, jitter_rng;
};

void shaper_init(struct shaper *shaper, uint64_t seed, uint64_t now_ns);
const char *shape_problem(const struct shape *shape);
uint64_t shape_queue_limit_bytes(const struct shape *shape);
enum verdict shaper_admit(struct shaper *shaper, uint32_t ip_bytes, uint64_t now_ns, struct timing *timing);
uint64_t shaper_backlog_bytes(struct shaper *shaper, uint64_t now_ns);
bool shape_moves_queue(const struct shape *old, const struct shape *new);
void shaper_change(struct shaper *shaper, const struct shape *shape, uint64_t now_ns);
void shaper_retime(struct shaper *shaper, uint64_t old_rate_bps, uint64_t now_ns, struct timing *timing);

/* ---- shape_keys.c ---- */

bool shape_set_key(struct shape *shape, const char *key, uint64_t value);
void shape_print(const struct shape *shape, struct text *text);

/* ---- line.c: packet memory, lines and the schedule ---- */

struct packet {
    struct timing timing;
    uint32_t ip_bytes;
    int32_t previous, next;
};

struct pool {
    struct packet *packets;
    unsigned char *memory;      /* each slot: room for an Ethernet header, then the IP packet */
    size_t slot_bytes;
    uint32_t capacity, used;
    int32_t free_head;
};

struct pair_counters {
    uint64_t in_packets, in_bytes, out_packets, out_bytes;
    uint64_t lost, policed, queue_full, cut, pool_empty, send_failed;
    uint64_t queue_bytes_max;
    struct lateness late;
};

struct pair {
    struct shaper shaper;
    bool cut;
    uint16_t from, to;
    int32_t head, tail;
    uint32_t line_packets;
    int32_t heap_index;
    struct pair_counters counters;
};

struct schedule {
    struct pair **heap;
    uint32_t used;
};

bool pool_open(struct pool *pool, uint32_t capacity, uint32_t mtu_bytes);
int32_t pool_take(struct pool *pool);
void pool_give(struct pool *pool, int32_t index);
unsigned char *pool_ip(const struct pool *pool, int32_t index);
void line_insert(struct pool *pool, struct schedule *schedule, struct pair *pair, int32_t index);
int32_t line_pop(struct pool *pool, struct schedule *schedule, struct pair *pair);
void line_flush(struct pool *pool, struct schedule *schedule, struct pair *pair);
void line_reshape(struct pool *pool, struct schedule *schedule, struct pair *pair, const struct shape *shape,
                  uint64_t now_ns);
uint64_t schedule_next_ns(const struct schedule *schedule, const struct pool *pool);

/* ---- ports ---- */

enum port_kind { PORT_PACKET, PORT_TUN, PORT_NULL };

struct port_counters {
    uint64_t in_packets, not_ipv4, malformed, no_route, no_neighbour, offloaded, ring_full, device_errors;
};

struct ring {
    unsigned char *memory;
    size_t memory_bytes, frame_bytes;
    uint32_t frames, next;
};

struct port {
    char name[NAME_BYTES];
    enum port_kind kind;
    char interface[IF_NAMESIZE];        /* our end of the veth; for a TUN its name inside the region */
    char peer[IF_NAMESIZE];             /* the region's end */
    char netns[PATH_BYTES];             /* the region's network namespace; empty: not ours to enter */
    unsigned char mac[MAC_BYTES];       /* the region's address; learned from its packets if not given */
    bool mac_known;
    int receive_fd, send_fd;
    struct ring ring;
    uint64_t last_arrival_ns;
    struct shaper uplink;               /* what the region sends to all others together; only rate and queue are used */
    int32_t batch[BATCH_PACKETS];
    struct pair *batch_pair[BATCH_PACKETS];
    uint32_t batch_used;
    struct port_counters counters;
};

struct route {
    uint32_t address, mask;
    uint8_t length;
    uint16_t port;
};

struct emulator {
    struct port ports[MAX_PORTS];
    uint32_t num_ports;
    struct route routes[MAX_ROUTES];    /* longest prefix first */
    uint32_t num_routes;
    struct pair *pairs;                 /* num_ports * num_ports */
    struct pool pool;
    struct schedule schedule;
    uint32_t mtu_bytes, pool_packets, ring_frames;
    uint64_t seed, started_ns, counted_since_ns, cpu_since_ns;
    unsigned char gateway_mac[MAC_BYTES];
    uint32_t gateway_address;
    bool running, stop;
};

/* Errors are one sentence in `error` (ERROR_BYTES); true means success. */
bool port_open(struct emulator *emu, struct port *port, char *error);
void port_close(struct port *port);
unsigned port_receive(struct emulator *emu, struct port *port, unsigned budget);
void port_clear_error(struct port *port);
void port_read_statistics(struct port *port);
bool packet_open(struct emulator *emu, struct port *port, char *error);
unsigned packet_receive(struct emulator *emu, struct port *port, unsigned budget);
unsigned packet_send(struct emulator *emu, struct port *port);
bool tun_open(struct port *port, char *error);
unsigned tun_receive(struct emulator *emu, struct port *port, unsigned budget);
unsigned tun_send(struct emulator *emu, struct port *port);
bool offloads_off(const char *interface, char *error);

/* ---- fabric.c: from port to port ---- */

bool fabric_start(struct emulator *emu, char *error);
struct pair *fabric_pair(struct emulator *emu, uint32_t from, uint32_t to);
void fabric_accept(struct emulator *emu, struct port *from, const unsigned char *ip, uint32_t captured_bytes,
                   uint64_t arrival_ns);
unsigned fabric_dispatch(struct emulator *emu, uint64_t now_ns);
void fabric_reset_counters(struct emulator *emu);
bool route_add(struct emulator *emu, uint32_t address, uint8_t length, uint16_t port);
bool route_remove(struct emulator *emu, uint32_t address, uint8_t length, uint16_t port);
int route_find(const struct emulator *emu, uint32_t address);

/* ---- command.c, report.c ---- */

#define LINE_BYTES 4096
#define MAX_CLIENTS 8

struct client {
    int fd;                     /* -1: free */
    char line[LINE_BYTES];
    size_t line_used;
    struct text reply;
    size_t reply_sent;
    bool closing;               /* nothing more is read; closed once the reply is out */
};

struct control {
    int listener, owner;        /* -1: none */
    struct client clients[MAX_CLIENTS];
};

bool command_run(struct emulator *emu, char *line, struct text *reply);
void report_shapes(struct emulator *emu, struct text *reply);
void report_stats(struct emulator *emu, struct text *reply);
uint64_t process_cpu_ns(void);

/* ---- parse.c ---- */

bool parse_number(const char *digits, uint64_t *value);
bool parse_mac(const char *string, unsigned char mac[MAC_BYTES]);
bool parse_prefix(const char *string, uint32_t *address, uint8_t *length);

/* ---- control.c ---- */

void control_init(struct control *control);
bool control_listen(struct control *control, const char *path, char *error);
bool control_adopt(struct control *control, int fd);
void control_serve(struct emulator *emu, struct control *control, unsigned index, short events);
void control_accept(struct control *control);
void control_close(struct control *control, const char *path);

/* ---- loop.c ---- */

void loop_run(struct emulator *emu, struct control *control);

#endif
