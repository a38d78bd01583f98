/*
 * Two processes on two RDMA devices that check what the other's operations did, byte for byte. The program is linked once,
 * against the system's libibverbs, and runs on any device: on a kernel driver as it is, on pumice through LD_LIBRARY_PATH.
 *
 * Both processes run the same scenario at the same time, one as the client and one as the server. They talk over TCP to
 * exchange what each must know of the other, and to meet.
 */
#ifndef INTEROP_H
#define INTEROP_H

#include <errno.h>
#include <infiniband/verbs.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Registered memory of each side: what leaves is taken from SOURCE, what comes is put at TARGET. */
#define REGION (2u << 20)
#define SOURCE 0u
#define TARGET REGION
#define MEMORY (2 * REGION)
#define DEPTH 128
#define QKEY 0x11111111

/* What one side must know of the other. */
struct facts {
	uint32_t qpn, psn, rkey, window_rkey;
	uint64_t address;
	union ibv_gid gid;
	uint64_t abilities;
};

/* How a pair of queue pairs is made; zero means the usual. */
struct plan {
	enum ibv_qp_type type;
	uint32_t first_psn;   /* of both directions; random if 0 */
	int rd_atomic;        /* READs and atomics under way at a time: 16 */
	int timeout, retries; /* 14 and 7 */
	int rnr_retries;      /* 7, that is without end; -1 means none */
	int rnr_timer;        /* how long the peer is to wait for a receive, as the attribute has it: 1 */
	int traffic_class;
	uint32_t flow_label;
	uint64_t extended;    /* operations of the extended calls (IBV_QP_EX_WITH_*) */
	int more_rights;      /* beside those of all remote operations */
	uint32_t wrong_qpn;   /* connect to this one rather than to the peer's */
	bool shared_receives; /* from an SRQ */
	int no_rights;        /* taken from the queue pair's rights */
};

struct side {
	bool client;
	int control;
	struct ibv_context *context;
	int gid_index;
	enum ibv_mtu mtu;
	uint32_t mtu_bytes;
	int rounds;
	uint64_t abilities; /* of device_cap_flags_ex */
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	uint8_t *memory;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_srq *srq;
	struct facts own, peer;
	char figures[400];
	jmp_buf given_up;
};

/* A scenario returns normally if it went as it should; `figures` is then printed. */
typedef void scenario(struct side *s);
struct named {
	const char *name;
	scenario *run;
};
extern const struct named data_scenarios[], key_scenarios[], datagram_scenarios[], error_scenarios[], newer_scenarios[],
	captured_scenarios[], captured_failures[];

/* Gives the scenario up unless the claim holds. */
#define CLAIM(claim, ...)                                                                                     \
	do {                                                                                                  \
		if (!(claim)) {                                                                               \
			fprintf(stderr, "%s:%d: not so: %s (errno %d)", __FILE__, __LINE__, #claim, errno); \
			fprintf(stderr, " " __VA_ARGS__);                                                     \
			fputc('\n', stderr);                                                                  \
			longjmp(s->given_up, 1);                                                              \
		}                                                                                             \
	} while (0)
void skip(struct side *s, const char *why) __attribute__((noreturn));

/* control.c */
int listen_once(int port);
int reach(const char *host, int port);
bool say(int control, const void *bytes, size_t length);
bool hear(int control, void *bytes, size_t length);
/* Both sides call it with a value and get the other's. */
uint64_t tell(struct side *s, uint64_t value);
/* Both sides have come here. */
void meet(struct side *s);

/* link.c */
void open_side(struct side *s, const char *device);
void connect_pair(struct side *s, const struct plan *plan);
void disconnect(struct side *s);
struct ibv_ah *address_of_peer(struct side *s);
uint64_t remote(struct side *s, uint64_t offset);

/* requests.c */
struct ibv_sge piece(struct side *s, uint64_t offset, uint32_t length);
/* At TARGET + offset; the work request's number is the offset. */
void post_receive(struct side *s, uint64_t offset, uint32_t length);
void post_sge(struct side *s, struct ibv_sge *sge, int pieces, struct ibv_send_wr *wr);
void post(struct side *s, enum ibv_wr_opcode opcode, uint64_t from, uint32_t length, uint64_t to, uint32_t imm, int flags);
void post_atomic(struct side *s, bool swap, uint64_t result_at, uint64_t to, uint64_t compare_add, uint64_t swap_in);
struct ibv_wc next_completion(struct side *s);
uint64_t now_milliseconds(void);
/* False if none comes within the time. */
bool completion_within(struct side *s, struct ibv_wc *wc, unsigned milliseconds);
/* `count` successes. */
void succeed(struct side *s, int count);
/* The next completion is a receive of this length. */
struct ibv_wc received(struct side *s, uint32_t length);
/* Bytes that depend on the seed and their place only. */
void fill(uint8_t *bytes, size_t length, uint64_t seed);
void expect(struct side *s, const uint8_t *bytes, size_t length, uint64_t seed);
/* `length` bytes from here still are `value`: nothing was written beyond the end. */
void untouched(struct side *s, const uint8_t *bytes, size_t length, uint8_t value);
uint64_t mixed(uint64_t x);

/* datagrams.c */
void post_datagram(struct side *s, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey, uint32_t length, uint32_t imm, int flags);

/* captured.c: a pair as those that were captured. */
struct plan as_captured(const struct side *s, enum ibv_qp_type type);

/* keys.c: a window on 4096 bytes at TARGET, whose key is told to the peer; WRITEs and invalidation with a key of the peer's. */
struct ibv_mw *bind_window(struct side *s, enum ibv_mw_type type);
void write_with(struct side *s, uint32_t key, uint64_t to, uint32_t length);
void send_and_invalidate(struct side *s, uint32_t key, uint32_t length);

/* newer.c: operations that the headers of older libraries do not have yet; they are in the tables of newer ones. */
#define ABILITY_FLUSH_GLOBAL (1ull << 38)
#define ABILITY_ATOMIC_WRITE (1ull << 40)
#define ACCESS_FLUSH_GLOBAL (1 << 8)
enum { OPCODE_FLUSH = 8, OPCODE_ATOMIC_WRITE = 9 }; /* of completions */
enum { FLUSH_VISIBLE = 1, FLUSH_PERSISTENT = 2 };
enum { FLUSH_RANGE = 0, FLUSH_REGION = 1 };
/* As connect_pair, but skips the scenario if one of the two has not this ability. */
void connect_able_pair(struct side *s, uint64_t ability, struct plan plan);
void post_atomic_write(struct side *s, uint64_t id, uint64_t to, const uint8_t bytes[8]);
void post_flush(struct side *s, uint64_t id, uint64_t from, uint32_t length, int placement, int selectivity);

#endif
