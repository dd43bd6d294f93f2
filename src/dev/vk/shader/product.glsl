// SPDX-License-Identifier: Apache-2.0
// What products of integer codes and of floats share: their arguments, and where a result goes. A
// workgroup makes the 16 rows of a tile for a few columns: 8 teams of 16 lanes, a lane a row.
layout(local_size_x = 128) in;
layout(push_constant, scalar) uniform P {
    uint64_t pieces, scale, act, y, bias, ids;
    uint piece_tiles, tile_bytes, n_tile; // n_tile: of one matrix of the stack
    uint n_group, n_row, is_pair, side;   // side: 1 = this is the second stream of a pair
    uint n_tok, stride, n_plane, plane;   // of act, in words: from token to token, to plane 2
    uint ldy, per, n_mat, bias_ld;        // ids: [z] the matrix; a column each, of token z / per
} p;

// The matrix of this workgroup; -1: none.
int mat_of()
{
    return p.ids == 0ul ? 0 : I32(p.ids).v[gl_WorkGroupID.z];
}

uint column0(uint n_col)
{
    return p.ids == 0ul ? gl_WorkGroupID.y * n_col : gl_WorkGroupID.z;
}

uint n_column(uint n_col)
{
    return p.ids == 0ul ? min(n_col, p.n_tok - gl_WorkGroupID.y * n_col) : 1u;
}

uint token_of(uint column)
{
    return p.ids == 0ul ? column : column / p.per;
}

uint64_t tile_of(int mat)
{
    return tile_at(p.pieces, p.piece_tiles, p.tile_bytes, uint(mat) * p.n_tile + gl_WorkGroupID.x);
}

uint which_half()
{
    return p.is_pair != 0u ? gl_WorkGroupID.x & 1u : p.side;
}

float tensor_scale(int mat)
{
    return F32(p.scale).v[2u * uint(mat) + which_half()];
}

// Row r of the tile, in a pair beside those of the first half.
void store(int mat, uint column, uint r, float v)
{
    uint t = p.is_pair != 0u ? gl_WorkGroupID.x >> 1 : gl_WorkGroupID.x, row = 16u * t + r;
    if (row >= p.n_row) return;
    row += which_half() * p.n_row;
    if (p.bias != 0ul) v = add(v, F32(p.bias).v[uint(mat) * p.bias_ld + row]);
    F32(p.y).v[column * p.ldy + row] = v;
}
