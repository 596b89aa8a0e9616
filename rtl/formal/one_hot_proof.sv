// The map has the one bit at the position, if enabled, and no other.
module one_hot_proof #(
    parameter int unsigned W = 128
) (
    input logic                 enable_i,
    input logic [$clog2(W)-1:0] position_i
);
  logic [W-1:0] map;

  one_hot #(.W(W)) i_one_hot (.enable_i(enable_i), .position_i(position_i), .map_o(map));

  always_comb for (int unsigned i = 0; i < W; i++) assert (map[i] == (enable_i && i == 32'(position_i)));
endmodule
