/* Creates many RC queue pairs in one process, moves a sample of them to INIT, and prints how many there were. usage: many_qps DEVICE COUNT */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct ibv_context *open_device(const char *name) {
  int count = 0;
  struct ibv_device **list = ibv_get_device_list(&count);
  struct ibv_context *context = NULL;
  for (int i = 0; i < count; ++i) {
    if (strcmp(ibv_get_device_name(list[i]), name) == 0) context = ibv_open_device(list[i]);
  }
  ibv_free_device_list(list);
  return context;
}

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  const int count = atoi(argv[2]);
  struct ibv_context *context = open_device(argv[1]);
  if (context == NULL) return perror("open"), 1;
  struct ibv_pd *pd = ibv_alloc_pd(context);
  struct ibv_cq *cq = ibv_create_cq(context, 1024, NULL, NULL, 0);
  struct ibv_qp **qps = calloc((size_t)count, sizeof *qps);
  if (pd == NULL || cq == NULL || qps == NULL) return perror("set-up"), 1;
  struct ibv_qp_init_attr init = {.send_cq = cq,
                                  .recv_cq = cq,
                                  .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
                                  .qp_type = IBV_QPT_RC};
  for (int i = 0; i < count; ++i) {
    qps[i] = ibv_create_qp(pd, &init);
    if (qps[i] == NULL) return fprintf(stderr, "queue pair %d: ", i), perror("create"), 1;
    if (i % 1000 != 0) continue;
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    if (ibv_modify_qp(qps[i], &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) != 0) {
      return perror("modify"), 1;
    }
  }
  printf("%d queue pairs\n", count);
  for (int i = 0; i < count; i += 2) {
    if (ibv_destroy_qp(qps[i]) != 0) return perror("destroy"), 1;
  }
  return 0; /* the rest goes with the process */
}
