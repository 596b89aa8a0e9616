// Position of the first set bit, from bit 0 on.
//
// The search has two levels: groups of bits are combined by OR, the first group that is not empty is selected, and then
// the first bit in it. With W = 128 the groups have 16 bits.
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
  logic [GROUPS-1:0]       is_used;
  logic [GROUP_W-1:0]      group;
  logic [GROUP-1:0]        bits;
  logic [POSITION_W-1:0]   position;

  always_comb begin
    padded = '0;
    padded[W-1:0] = map_i;
    for (int unsigned g = 0; g < GROUPS; g++) is_used[g] = |padded[GROUP*g+:GROUP];
    group = '0;
    for (int unsigned g = GROUPS; g > 0; g--) if (is_used[g-1]) group = GROUP_W'(g - 1);
    bits = padded[GROUP*group+:GROUP];
    position = '0;
    for (int unsigned b = GROUP; b > 0; b--) if (bits[b-1]) position = POSITION_W'(b - 1);
  end

  assign found_o = |is_used;
  assign position_o = RESULT_W'({group, position});
endmodule
