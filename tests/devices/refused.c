// Opens two devices, the second one last, and makes calls on the first one that are refused.
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(ok)                                            \
    do {                                                     \
        if (!(ok)) {                                         \
            fprintf(stderr, "line %d: %s\n", __LINE__, #ok); \
            exit(1);                                         \
        }                                                    \
    } while (0)

int main(void)
{
    static char bytes[4096];
    struct ibv_context *contexts[2];
    struct ibv_pd *pds[2];
    struct ibv_device **list = ibv_get_device_list(NULL);
    CHECK(list);
    for (int index = 0; index < 2; index++) {
        CHECK(contexts[index] = ibv_open_device(list[index]));
        CHECK(pds[index] = ibv_alloc_pd(contexts[index]));
    }
    // The plan refuses the first of these, of the first device, and the third, of the second one.
    CHECK(!ibv_reg_mr(pds[0], bytes, sizeof bytes, 0));
    struct ibv_mr *mr = ibv_reg_mr(pds[0], bytes, sizeof bytes, 0);
    CHECK(mr && !ibv_reg_mr(pds[1], bytes, sizeof bytes, 0));
    // The device refuses this one.
    CHECK(!ibv_create_cq(contexts[0], -1, NULL, NULL, 0));
    CHECK(!ibv_dereg_mr(mr));
    for (int index = 0; index < 2; index++)
        CHECK(!ibv_dealloc_pd(pds[index]) && !ibv_close_device(contexts[index]));
    ibv_free_device_list(list);
    puts("refused");
    return 0;
}
