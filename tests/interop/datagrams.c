/* Services that do not answer: what arrives must be right, and so few packets are under way that all do. */
#include "interop.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static void unreliable(struct side *s)
{
	static const uint32_t sizes[] = {0, 1, 33, 1024, 1025, 4096, 10001, 0};
	connect_pair(s, &(struct plan){.type = IBV_QPT_UC});
	for (unsigned i = 0; i < 4 * 8; i++) {
		static const enum ibv_wr_opcode opcodes[] = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_WRITE};
		enum ibv_wr_opcode opcode = opcodes[i / 8];
		uint32_t length = sizes[i % 8];
		bool write = opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
		if (!s->client)
			post_receive(s, 0, write ? 0 : 20000);
		meet(s);
		if (s->client) {
			fill(s->memory, length, i);
			post(s, opcode, SOURCE, length, TARGET + 30000, i, 0);
			succeed(s, 1);
			/* Nothing tells when a WRITE is there; a SEND after it does. */
			if (opcode == IBV_WR_RDMA_WRITE) {
				post(s, IBV_WR_SEND, 0, 0, 0, 0, 0);
				succeed(s, 1);
			}
		} else {
			struct ibv_wc wc = received(s, opcode == IBV_WR_RDMA_WRITE ? 0 : length);
			bool immediate = opcode == IBV_WR_SEND_WITH_IMM || opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
			CLAIM(!!(wc.wc_flags & IBV_WC_WITH_IMM) == immediate && (!immediate || wc.imm_data == htobe32(i)));
			expect(s, s->memory + TARGET + (write ? 30000 : 0), length, i);
		}
	}
	if (!s->client)
		snprintf(s->figures, sizeof(s->figures), "32 messages");
}

void post_datagram(struct side *s, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey, uint32_t length, uint32_t imm, int flags)
{
	struct ibv_sge sge = piece(s, SOURCE, length);
	struct ibv_send_wr wr = {.opcode = imm ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED | flags, .imm_data = htobe32(imm)};
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = qpn;
	wr.wr.ud.remote_qkey = qkey;
	post_sge(s, &sge, length > 0, &wr);
}

/* The header in front of a datagram names its sender and is one that receivers accept. */
static void check_header(struct side *s, const uint8_t *header, uint32_t length)
{
	static const uint8_t v4_prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
	if (!memcmp(s->peer.gid.raw, v4_prefix, 12)) {
		const uint8_t *ip = header + 20;
		uint32_t sum = 0;
		for (int i = 0; i < 20; i += 2)
			sum += ip[i] << 8 | ip[i + 1];
		sum = (sum & 0xffff) + (sum >> 16);
		sum = (sum & 0xffff) + (sum >> 16);
		CLAIM(ip[0] == 0x45 && sum == 0xffff, "no IPv4 header");
		CLAIM(ip[9] == 17 && !memcmp(ip + 12, s->peer.gid.raw + 12, 4), "not from the peer");
		/* IP, UDP, BTH, DETH, pad, ICRC */
		uint32_t total = ip[2] << 8 | ip[3], want = 20 + 8 + 12 + 8 + ((length + 3) & ~3u) + 4;
		CLAIM(total == want || total == want + 4, "%u bytes, not %u", total, want);
	} else {
		CLAIM(header[0] >> 4 == 6 && !memcmp(header + 8, s->peer.gid.raw, 16), "no IPv6 header from the peer");
	}
}

static void datagrams(struct side *s)
{
	static const uint32_t sizes[] = {0, 1, 3, 33, 255, 1000, 1024};
	connect_pair(s, &(struct plan){.type = IBV_QPT_UD});
	struct ibv_ah *ah = address_of_peer(s);
	for (unsigned i = 0; i < 14; i++) {
		uint32_t length = sizes[i % 7], imm = i < 7 ? 0 : i;
		post_receive(s, 0, 2000);
		meet(s);
		/* There and back: the answer goes where the completion says that it came from. */
		if (s->client) {
			fill(s->memory, length, i);
			post_datagram(s, ah, s->peer.qpn, QKEY, length, imm, 0);
		}
		/* The answer may be there before the completion of what it answers. */
		struct ibv_wc wc = next_completion(s);
		if (s->client) {
			struct ibv_wc other = next_completion(s);
			CLAIM(wc.status == IBV_WC_SUCCESS && other.status == IBV_WC_SUCCESS);
			wc = wc.opcode & IBV_WC_RECV ? wc : other;
		}
		CLAIM(wc.status == IBV_WC_SUCCESS && wc.opcode & IBV_WC_RECV && wc.byte_len == 40 + length, "%u bytes", wc.byte_len);
		CLAIM(wc.wc_flags & IBV_WC_GRH && wc.src_qp == s->peer.qpn, "from %#x", wc.src_qp);
		CLAIM(!!(wc.wc_flags & IBV_WC_WITH_IMM) == !!imm && (!imm || wc.imm_data == htobe32(imm)));
		expect(s, s->memory + TARGET + 40, length, i);
		check_header(s, s->memory + TARGET, length);
		if (!s->client) {
			struct ibv_ah *back = ibv_create_ah_from_wc(s->pd, &wc, (struct ibv_grh *)(s->memory + TARGET), 1);
			CLAIM(back);
			fill(s->memory, length, i);
			post_datagram(s, back, wc.src_qp, QKEY, length, imm, 0);
			succeed(s, 1);
			ibv_destroy_ah(back);
		}
		meet(s);
	}
	ibv_destroy_ah(ah);
	if (!s->client)
		snprintf(s->figures, sizeof(s->figures), "14 there and back");
}

/* To 239.1.2.3; a queue pair that has not joined gets nothing. */
static void multicast(struct side *s)
{
	/* A kernel lets the group in where a socket has joined it, which is the connection manager's work usually. */
	int joined = socket(AF_INET, SOCK_DGRAM, 0);
	struct ip_mreq wants = {.imr_multiaddr = {htobe32(0xef010203)}};
	memcpy(&wants.imr_interface, s->own.gid.raw + 12, 4);
	CLAIM(!setsockopt(joined, IPPROTO_IP, IP_ADD_MEMBERSHIP, &wants, sizeof(wants)));
	union ibv_gid group = {.raw = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3}};
	connect_pair(s, &(struct plan){.type = IBV_QPT_UD});
	if (!s->client) {
		CLAIM(!ibv_attach_mcast(s->qp, &group, 0));
		for (int i = 0; i < 10; i++)
			post_receive(s, 4096 * i, 2000);
	}
	meet(s);
	if (s->client) {
		struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = group, .sgid_index = s->gid_index, .hop_limit = 1}};
		struct ibv_ah *ah = ibv_create_ah(s->pd, &attr);
		CLAIM(ah);
		for (int i = 0; i < 10; i++) {
			fill(s->memory, 100 + i, i);
			post_datagram(s, ah, 0xffffff, QKEY, 100 + i, 0, 0);
			succeed(s, 1);
		}
		ibv_destroy_ah(ah);
	} else {
		for (int i = 0; i < 10; i++) {
			struct ibv_wc wc = received(s, 140 + i);
			CLAIM(wc.src_qp == s->peer.qpn);
			expect(s, s->memory + TARGET + 4096 * i + 40, 100 + i, i);
		}
		CLAIM(!ibv_detach_mcast(s->qp, &group, 0));
		snprintf(s->figures, sizeof(s->figures), "10 datagrams");
	}
	close(joined);
}

const struct named datagram_scenarios[] = {{"uc", unreliable}, {"ud", datagrams}, {"multicast", multicast}, {NULL, NULL}};
