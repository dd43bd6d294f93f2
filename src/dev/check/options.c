/* SPDX-License-Identifier: Apache-2.0 */
/* Options of the devices `check` and `sim`: one table for both. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dev/check/check.h"

#define CHECK 1u
#define SIM 2u

enum form { COUNT, BYTES, GBPS, RATE, TIME, NAME, CLOCK, FAULT };
struct option {
    const char *key, *text; /* text: how its value is written */
    unsigned of;            /* devices that have it */
    enum form form;
    size_t at;
};

static const struct option options[] = {
    {"fail", "K", CHECK, COUNT, offsetof(struct check, fault.call)},
    {"lost", "K", CHECK, COUNT, offsetof(struct check, fault.lost)},
    {"lacks", "NAME", CHECK | SIM, NAME, offsetof(struct check, lacks)},
    {"mem", "BYTES", CHECK | SIM, BYTES, offsetof(struct check, mem)},
    {"bw", "GB/s", SIM, GBPS, offsetof(struct check, clock.bw)},
    {"ops", "OPS/s", SIM, RATE, offsetof(struct check, clock.ops)},
    {"bus", "GB/s", SIM, GBPS, offsetof(struct check, clock.bus)},
    {"lat", "TIME", SIM, TIME, offsetof(struct check, clock.lat)},
    {"hand", "TIME", SIM, TIME, offsetof(struct check, clock.hand)},
    {"host-bw", "GB/s", SIM, GBPS, offsetof(struct check, clock.host_bw)},
    {"host-ops", "OPS/s", SIM, RATE, offsetof(struct check, clock.host_ops)},
    {"clock", "virtual|real", SIM, CLOCK, 0},
    {"cut", "TIME", SIM, TIME, offsetof(struct check, clock.cut)},
    {"fail", "alloc:K|lost:K|slow:K|hang:K", SIM, FAULT, 0},
};

static unsigned bit_of(const struct check *c)
{
    return c->clock.is_on ? SIM : CHECK;
}

/* A number above 0, or not below it, and a suffix of units, whose i-th counts factor[i]. */
struct units {
    const char *const *name;
    const double *factor;
    int n;
    bool zero;
};
static bool read_number(const char *s, const struct units *u, double *out)
{
    char *end = NULL;
    if (*s < '0' || *s > '9') return false;
    double v = strtod(s, &end), f = 0;
    for (int i = 0; i < u->n; i++)
        if (strcmp(end, u->name[i]) == 0) f = u->factor[i];
    *out = v * f;
    return f > 0 && isfinite(*out) && (*out > 0 || u->zero);
}

static bool read_scaled(const char *s, enum form form, double *out)
{
    static const char *const sizes[] = {"", "K", "M", "G", "T"};
    static const char *const times[] = {"ns", "us", "ms", "s"};
    static const double binary[] = {1, 1024., 1048576., 1073741824., 1099511627776.};
    static const double decimal[] = {1, 1e3, 1e6, 1e9, 1e12}, giga[] = {1e9};
    static const double ns[] = {1, 1e3, 1e6, 1e9};
    static const struct units of[] = {[COUNT] = {sizes, decimal, 1, false},
                                      [BYTES] = {sizes, binary, 5, false},
                                      [GBPS] = {sizes, giga, 1, false},
                                      [RATE] = {sizes, decimal, 5, false},
                                      [TIME] = {times, ns, 4, true}};
    return read_number(s, &of[form], out);
}

static bool read_fault(struct check *c, const char *s)
{
    const struct {
        const char *key;
        uint64_t *at;
    } faults[] = {{"alloc:", &c->fault.alloc},
                  {"lost:", &c->fault.lost_submit},
                  {"slow:", &c->fault.slow_submit},
                  {"hang:", &c->fault.hang_submit}};
    for (int i = 0; i < BASE_COUNT_OF(faults); i++) {
        size_t n = strlen(faults[i].key);
        double v = 0;
        if (strncmp(s, faults[i].key, n) != 0) continue;
        if (!read_scaled(s + n, COUNT, &v)) return false;
        *faults[i].at = (uint64_t)v;
        return v == floor(v);
    }
    return false;
}

static bool read_value(struct check *c, const struct option *o, const char *s)
{
    void *at = (char *)c + o->at;
    double v = 0;
    switch (o->form) {
    case NAME:
        snprintf(at, sizeof c->lacks, "%s", s);
        return *s && strlen(s) < sizeof c->lacks;
    case CLOCK:
        c->clock.is_real = strcmp(s, "real") == 0;
        return c->clock.is_real || strcmp(s, "virtual") == 0;
    case FAULT:
        return read_fault(c, s);
    case COUNT:
    case BYTES:
        if (!read_scaled(s, o->form, &v) || v != floor(v) || v >= 0x1p63) return false;
        *(uint64_t *)at = (uint64_t)v;
        return true;
    case TIME:
        if (!read_scaled(s, o->form, &v) || v > 1e12) return false;
        *(int64_t *)at = (int64_t)v;
        return true;
    default:
        return read_scaled(s, o->form, at);
    }
}

static bool read_option(struct check *c, const char *s)
{
    for (int i = 0; i < BASE_COUNT_OF(options); i++) {
        const struct option *o = &options[i];
        size_t n = strlen(o->key);
        if (o->of & bit_of(c) && strncmp(s, o->key, n) == 0 && s[n] == '=')
            return read_value(c, o, s + n + 1);
    }
    return false;
}

static sl_status refuse(const struct check *c, const char *s, sl_err *err)
{
    char list[240];
    size_t k = 0;
    for (int i = 0; i < BASE_COUNT_OF(options) && k < sizeof list; i++)
        if (options[i].of & bit_of(c))
            k += (size_t)snprintf(list + k, sizeof list - k, "%s%s=%s", k ? ", " : "",
                                  options[i].key, options[i].text);
    return SL_FAIL(err, REQUEST, "device '%s': option '%.40s': there are %s", c->head.cls->name, s,
                   list);
}

sl_status dev_check_options(struct check *c, const char *s, sl_err *err)
{
    char one[64];
    for (size_t n; *s; s += n + (s[n] == ',')) {
        n = strcspn(s, ",");
        snprintf(one, sizeof one, "%.*s", (int)BASE_MIN(n, sizeof one), s);
        if (n >= sizeof one || !read_option(c, one)) return refuse(c, one, err);
    }
    if (c->clock.is_real && c->clock.host_bw + c->clock.host_ops > 0)
        return SL_FAIL(err, REQUEST, "device 'sim': host-bw and host-ops are of clock=virtual");
    return SL_OK;
}
