/* The functions of NCCL that CubeCL calls, doing nothing: with the counting driver no GPU computes. What NCCL itself takes of a GPU is
   not part of CubeCL's pools. The types are those of nccl.h. */

typedef struct {
  char internal[128];
} ncclUniqueId;
typedef void *ncclComm_t;

int ncclGetUniqueId(ncclUniqueId *id) {
  id->internal[0] = 1;
  return 0;
}

int ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank) {
  static char communicator;
  *comm = &communicator;
  return 0;
}

int ncclAllReduce(const void *from, void *to, unsigned long count, int type, int operation, ncclComm_t comm, void *stream) {
  return 0;
}

int ncclSend(const void *from, unsigned long count, int type, int peer, ncclComm_t comm, void *stream) {
  return 0;
}

int ncclRecv(void *to, unsigned long count, int type, int peer, ncclComm_t comm, void *stream) {
  return 0;
}
