/* As in lost_wakeup.c, but the threads sleep in poll(2), select(2) and epoll_wait(2). */
#include "ends.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>

#ifdef FIXED
#define PATIENCE_MS 100
#else
#define PATIENCE_MS 6000
#endif

static void one_sleep(int how)
{
	struct ends ends;
	open_device(&ends);
	make_ends(&ends, 8);
	connect_ends(&ends);
	MUST(!post_receive(&ends, ends.there));
	MUST(!post(&ends, IBV_WR_SEND, IBV_SEND_SIGNALED));
	poll_one(ends.recv_cq);
	drive(ends.recv_cq);
	MUST(!ibv_req_notify_cq(ends.send_cq, 0)); // BUG: lost-wakeup
#ifdef FIXED
	poll_one(ends.send_cq);
#endif
	int fd = ends.channel->fd, set = epoll_create1(0);
	struct pollfd polled = {.fd = fd, .events = POLLIN};
	struct epoll_event event = {.events = EPOLLIN};
	struct timeval patience = {.tv_sec = PATIENCE_MS / 1000, .tv_usec = PATIENCE_MS % 1000 * 1000};
	fd_set readable;
	FD_ZERO(&readable);
	FD_SET(fd, &readable);
	MUST(!epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
	switch (how) {
	case 0:
		MUST(!poll(&polled, 1, PATIENCE_MS));
		break;
	case 1:
		MUST(!select(fd + 1, &readable, NULL, NULL, &patience));
		break;
	default:
		MUST(!epoll_wait(set, &event, 1, PATIENCE_MS));
	}
	close(set);
#ifndef FIXED
	poll_one(ends.send_cq);
#endif
	close_device(&ends);
}

int main(void)
{
	pid_t children[3];
	for (int how = 0; how < 3; how++) {
		MUST((children[how] = fork()) >= 0);
		if (!children[how]) {
			one_sleep(how);
			return 0;
		}
	}
	for (int how = 0; how < 3; how++) {
		int status;
		MUST(waitpid(children[how], &status, 0) == children[how] && status == 0);
	}
	return 0;
}
