/* SPDX-License-Identifier: Apache-2.0 */
/* A step in parts. In two halves, each some of its sequences: while what one has sent is on its way
 * to other ranks (dev_moe_phase), operators of the other run. Or with all of its tokens first, and
 * then with few of them. */
#ifndef DEV_HALVES_H
#define DEV_HALVES_H

#include "dev/dev.h"

/* Can the device? Its experts come in parts then, too. */
bool dev_has_halves(const dev *d);

/* From now on fn is called often while operators run, on the thread that runs them: it moves on
 * what is on its way. */
void dev_halves_look(dev *d, void (*fn)(void *user), void *user);

/* Programs of one device, the same operators in both halves, with buffers of their own. tail: of
 * the whole step, after them; merge is called in between. */
struct dev_halves {
    dev_prog *half[2], *tail;
    const struct dev_step *s[2];
    void (*merge)(void *user);
    void *user;
};
/* On step s, which begins with it. Halves take turns: the first until it has sent something, then
 * the second, and so on. */
void dev_halves_run(const struct dev_halves *h, dev_kv *kv, const struct dev_step *s);

/* Run more operators, of one device that has halves, on few, some of the tokens of the step that
 * dev_prog_run has begun: nothing is copied, and what is kept of prompts stays. */
void dev_prog_more(dev_prog *p, dev_kv *kv, const struct dev_step *few);

#endif
