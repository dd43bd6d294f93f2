/* SPDX-License-Identifier: Apache-2.0 */
/* Which part of a model lies on which device. */
#include "model/model_internal.h"

const char *model_part_name(enum model_part p)
{
    static const char *const names[] = {
#define X(name, text) text,
        MODEL_PART_LIST(X)
#undef X
    };
    return names[p];
}

void model_place_open(struct model *m, dev *d)
{
    m->place = m->opts.place ? *m->opts.place : (struct model_place){.d = {d}, .n_dev = 1};
    m->opts.place = NULL; /* the caller's */
    m->d = m->place.d[m->place.on[MODEL_ATTN]];
    ASSERT(m->d == d);
    for (int i = 0; i < m->place.n_dev; i++)
        m->side[i].d = m->place.d[i];
}

enum model_part model_part_of(enum arch_role role)
{
    switch (role) {
    case ROLE_MTP_EMBED:
        return MODEL_EMBED;
    case ROLE_GATE:
    case ROLE_UP:
    case ROLE_DOWN:
        return MODEL_DENSE;
    case ROLE_GATE_SHEXP:
    case ROLE_UP_SHEXP:
    case ROLE_DOWN_SHEXP:
        return MODEL_SHARED;
    case ROLE_ROUTER:
    case ROLE_ROUTER_BIAS:
        return MODEL_ROUTER;
    case ROLE_GATE_EXPS:
    case ROLE_UP_EXPS:
    case ROLE_GATE_UP_EXPS:
    case ROLE_DOWN_EXPS:
        return MODEL_EXPERTS;
    case ROLE_MTP_HEAD:
        return MODEL_HEAD;
    default:
        return MODEL_ATTN;
    }
}
