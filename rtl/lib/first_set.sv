// Position of the first set bit, from bit 0 on.
//
// The search has two levels, which work at the same time: the position of the first bit within each group of bits, and
// the first group that is not empty, which then selects one of these positions. With W = 128 the groups have 16 bits.
module first_set #(
    parameter int unsigned W = 128
) (
    input  logic [W-1:0]         map_i,
    output logic                 found_o,
    output logic [$clog2(W)-1:0] position_o
);
  localparam int unsigned GROUP = 2 ** (($clog2(W) + 1) / 2);
  localparam int unsigned GROUPS = (W + GROUP - 1) / GROUP;
  localparam int unsigned GROUP_W = (GROUPS == 1) ? 1 : $clog2(GROUPS);
  localparam int unsigned POSITION_W = $clog2(GROUP);
  localparam int unsigned RESULT_W = $clog2(W);

  logic [GROUPS*GROUP-1:0] padded;
  logic [GROUPS-1:0]       is_used, is_first;
  logic [GROUP_W-1:0]      group;
  logic [POSITION_W-1:0]   own, position;

  always_comb begin
    padded = '0;
    padded[W-1:0] = map_i;
    for (int unsigned g = 0; g < GROUPS; g++) is_used[g] = |padded[GROUP*g+:GROUP];
    group = '0;
    position = '0;
    is_first = '0;
    own = '0;
    for (int unsigned g = 0; g < GROUPS; g++) begin
      is_first[g] = is_used[g];
      for (int unsigned h = 0; h < g; h++) is_first[g] = is_first[g] & ~is_used[h];
      own = '0;
      for (int unsigned b = GROUP; b > 0; b--) if (padded[GROUP*g+b-1]) own = POSITION_W'(b - 1);
      if (is_first[g]) begin
        group = group | GROUP_W'(g);
        position = position | own;
      end
    end
  end

  assign found_o = |is_used;
  assign position_o = RESULT_W'({group, position});
endmodule
