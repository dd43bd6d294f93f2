/* SPDX-License-Identifier: Apache-2.0 */
/* A slow network between ranks of one machine, for tests: LD_PRELOAD=libslowlink.so between the
 * program and MPI. Every message is delivered SLOWLINK_US microseconds after its last byte has left
 * a sender whose link to each other rank carries SLOWLINK_MBIT Mbit/s (0: any). The time of sending
 * travels in the message's last bytes: ranks of a machine have one clock. Only what sluice's module
 * calls is here: messages of bytes, which begin in one call and are tested for in another. */
#include <mpi.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TAIL ((int)sizeof(int64_t))
#define SLOTS 512 /* messages under way */
#define RANKS 256

struct message {
    MPI_Request *request; /* the caller's, by which it is known; NULL = free */
    MPI_Request inner;
    MPI_Status status;
    char *bytes; /* of the message and its tail */
    void *to;    /* NULL: it is sent */
    int n;       /* bytes that came */
    int has_come;
    int64_t due;
};
static struct message under_way[SLOTS];
static int64_t free_at[RANKS]; /* when the link to a rank has sent all so far */

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static double setting(const char *name)
{
    const char *s = getenv(name);
    return s ? strtod(s, NULL) : 0;
}

static int64_t due_of(int to, int n)
{
    double mbit = setting("SLOWLINK_MBIT");
    int64_t start = now_ns(), took = mbit > 0 ? (int64_t)(8e3 * n / mbit) : 0;
    if (free_at[to] > start) start = free_at[to];
    free_at[to] = start + took;
    return free_at[to] + (int64_t)(1e3 * setting("SLOWLINK_US"));
}

static struct message *take(MPI_Request *request, int n)
{
    for (int i = 0; i < SLOTS; i++) {
        struct message *m = &under_way[i];
        if (m->request) continue;
        *m = (struct message){.request = request, .bytes = malloc((size_t)n + TAIL)};
        if (!m->bytes) return NULL;
        return m;
    }
    return NULL;
}

int MPI_Isend(const void *p, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    struct message *m = to < RANKS ? take(request, n) : NULL;
    if (!m || type != MPI_BYTE) return MPI_ERR_OTHER;
    int64_t due = due_of(to, n);
    if (n) memcpy(m->bytes, p, (size_t)n);
    memcpy(m->bytes + n, &due, TAIL);
    *request = (MPI_Request)(void *)m; /* anything but none */
    return PMPI_Isend(m->bytes, n + TAIL, MPI_BYTE, to, tag, comm, &m->inner);
}

int MPI_Irecv(void *p, int n, MPI_Datatype type, int from, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    struct message *m = take(request, n);
    if (!m || type != MPI_BYTE) return MPI_ERR_OTHER;
    m->to = p;
    *request = (MPI_Request)(void *)m;
    return PMPI_Irecv(m->bytes, n + TAIL, MPI_BYTE, from, tag, comm, &m->inner);
}

static int came(struct message *m)
{
    int flag = 0, rc = PMPI_Test(&m->inner, &flag, &m->status);
    if (rc != MPI_SUCCESS || !flag) return rc;
    m->has_come = 1;
    if (!m->to) return rc;
    rc = PMPI_Get_count(&m->status, MPI_BYTE, &m->n);
    m->n -= TAIL;
    memcpy(&m->due, m->bytes + m->n, TAIL);
    return rc;
}

int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status)
{
    struct message *m = NULL;
    *flag = *request == MPI_REQUEST_NULL;
    for (int i = 0; i < SLOTS && !*flag; i++)
        if (under_way[i].request == request) m = &under_way[i];
    if (!m) return *flag ? MPI_SUCCESS : MPI_ERR_REQUEST;
    int rc = m->has_come ? MPI_SUCCESS : came(m);
    if (rc != MPI_SUCCESS || !m->has_come || (m->to && now_ns() < m->due)) return rc;
    if (m->to) {
        memcpy(m->to, m->bytes, (size_t)m->n);
        *status = m->status;
        MPI_Status_set_elements(status, MPI_BYTE, m->n);
    }
    free(m->bytes);
    m->request = NULL;
    *request = MPI_REQUEST_NULL;
    *flag = 1;
    return MPI_SUCCESS;
}
