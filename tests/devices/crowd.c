// Opens every device of the process with one RC queue pair each, says how many, and stays until standard input ends.
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(void)
{
    int count = 0, opened = 0;
    struct ibv_device **list = ibv_get_device_list(&count);
    for (int index = 0; list && index < count; index++) {
        struct ibv_context *context = ibv_open_device(list[index]);
        struct ibv_pd *pd = context ? ibv_alloc_pd(context) : NULL;
        struct ibv_cq *cq = pd ? ibv_create_cq(context, 16, NULL, NULL, 0) : NULL;
        struct ibv_qp_init_attr wanted = {
            .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
            .cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1},
        };
        if (!cq || !ibv_create_qp(pd, &wanted)) {
            printf("opened %d, then %s\n", opened, strerror(errno));
            return 1;
        }
        opened++;
    }
    printf("opened %d\n", opened);
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) > 0)
        ;
    return 0;
}
