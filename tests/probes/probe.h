/* Probes of librdmacm and libibverbs: each prints one line, which says the call, what it returned, its errno, and what came of it. Nothing that
 * differs from run to run is printed, so that the lines of two devices can be compared. */
#pragma once
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The address of the device, and one of its network where no host is. */
extern const char *own, *dead;

/* Ends the program: what probes build on has failed. */
void must(int holds, const char *what, int line);
#define MUST(condition) must(!!(condition), #condition, __LINE__)

/* A call that returns 0, or -1 and errno. */
void outcome(const char *name, int result);
#define PROBE(name, call) (errno = 0, outcome(name, call))
/* A call that returns a pointer, or NULL and errno. */
#define PROBE_POINTER(name, call) (errno = 0, outcome(name, (call) ? 0 : -1))

/* A line of its own. */
void say(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));

union endpoint {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};
union endpoint at(const char *address, int port);
#define AT(address, port) (&(union endpoint[]){at(address, port)}->any)

struct rdma_event_channel *channel(void);
struct rdma_cm_id *identifier(struct rdma_event_channel *on, enum rdma_port_space space);

/* The next event, which has to come within five seconds; it is acknowledged. Its parameters are in `said`. */
enum rdma_cm_event_type next_event(struct rdma_event_channel *on, struct rdma_cm_event *said);
/* As a probe: its name, status and length of private data; "nothing" if none comes within `ms`. */
struct rdma_cm_id *told(const char *name, struct rdma_event_channel *on, int ms);
/* Waits for one of this kind. */
struct rdma_cm_id *expect(struct rdma_event_channel *on, enum rdma_cm_event_type wanted);

int port_of(struct rdma_cm_id *id);
struct rdma_cm_id *listening(struct rdma_event_channel *on, enum rdma_port_space space);
/* One that has resolved address and route to a port of the own address. */
struct rdma_cm_id *resolved(struct rdma_event_channel *on, enum rdma_port_space space, int port);
/* Makes the identifier's queue pair. */
int with_queue_pair(struct rdma_cm_id *id);

/* A client and the server's end of a connection. */
struct pair {
	struct rdma_event_channel *there, *here;
	struct rdma_cm_id *listener, *server, *client;
};
/* A request that the server has got; both have queue pairs. */
struct pair requested(enum rdma_port_space space);
/* Connected. */
struct pair connected(void);
void gone(struct pair *pair);

/* What rdma_init_qp_attr says for each state of a queue pair. */
void attributes(const char *name, struct rdma_cm_id *id);
