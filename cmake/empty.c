/* SPDX-License-Identifier: Apache-2.0 */
/* CMake wants a source for every library; the shared one is made of the rooms. */
typedef int sluice_empty;
