/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes: running requests are divided into as many as there are stages that compute at the same
 * time. While a lane's step is under way its requests are not planned; they may lose their blocks,
 * for steps are computed in the order in which they were planned, so the request that gets these
 * writes them later. */
#include "sched/sched_internal.h"

int sched_lane_count(const struct sched *s, int lane)
{
    int n = 0;
    for (int i = 0; i < s->n_active; i++)
        n += s->req[s->active[i]].lane == lane;
    return n;
}

int sched_lane_least(const struct sched *s)
{
    int best = s->lane, least = sched_lane_count(s, s->lane);
    for (int i = 0; i < s->opts.n_lane; i++) {
        int n = sched_lane_count(s, i);
        if (n < least) best = i;
        least = BASE_MIN(least, n);
    }
    return best;
}

bool sched_lane_room(const struct sched *s)
{
    int n_lane = s->opts.n_lane, n = s->n_active;
    if (n_lane < 2) return true;
    for (int i = 0; i < s->n_wait; i++)
        n += s->req[s->wait[i]].after < 0;
    return sched_lane_count(s, s->lane) < (n + n_lane - 1) / n_lane;
}

void sched_lane_even(struct sched *s)
{
    if (s->opts.n_lane < 2) return;
    int n = sched_lane_count(s, s->lane);
    for (int to; (to = sched_lane_least(s)) != s->lane; n--) {
        int i = s->n_active - 1;
        if (n - sched_lane_count(s, to) < 2) return;
        while (!sched_is_mine(s, &s->req[s->active[i]]))
            i--;
        s->req[s->active[i]].lane = to;
        s->req[s->active[i]].n_offer = 0; /* made for this step */
    }
}

void sched_landed(struct sched *s, int lane)
{
    for (int i = 0; i < s->n_active; i++)
        if (s->req[s->active[i]].lane == lane) s->req[s->active[i]].n_flight = 0;
}

bool sched_is_live(const struct sched *s, const struct sched_item *it)
{
    const struct sched_req *r = &s->req[it->req];
    return r->state == SCHED_RUNNING && r->start == it->start;
}
