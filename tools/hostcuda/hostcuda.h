/* What hostcuda's parts share: counting of calls, the imagined device's clock, capture of graphs. */
#ifndef HOSTCUDA_H
#define HOSTCUDA_H

#define _GNU_SOURCE
#include <cuda_runtime_api.h>
#include <stdatomic.h>
#include <stddef.h>

/* First thing in every function worth counting. */
#define COUNT                                                   \
  do {                                                          \
    static atomic_long *calls_;                                 \
    if (!calls_) calls_ = hostcuda_counter(__func__);           \
    atomic_fetch_add(calls_, 1);                                \
  } while (0)

/* A new opaque handle: streams, graphs, communicators and library contexts are only ever passed back to us. */
#define NEW_HANDLE(where) (*(void **)(where) = hostcuda_new_handle())

atomic_long *hostcuda_counter(const char *name);
void *hostcuda_new_handle(void);

/* ---- clock.c ---- */
extern long hostcuda_kernel_ns, hostcuda_gemm_ns, hostcuda_launch_ns, hostcuda_sync_ns;
extern int hostcuda_reads;
long hostcuda_now(void);           /* CLOCK_MONOTONIC, nanoseconds */
long hostcuda_drained_at(void);    /* when the device's queue will be empty; in the past where it is */
void hostcuda_wait_until(long at); /* block the calling thread */
void hostcuda_enqueue(long ns);    /* append work of that duration to the device's queue */
void hostcuda_launch(long ns);     /* the same, and the driver's own cost of a launch */
void hostcuda_drain(void);         /* wait for the queue */

/* ---- runtime.c: a call that CUDA forbids while a stream is being captured, from this thread ---- */
int hostcuda_capturing(void);
cudaError_t hostcuda_refuse_in_capture(void);

#endif
