// A count of a wide map is the weighted sum of the counts of the groups' bits. With `popcount_proof` at small widths,
// among them that of the groups' bits and that of one group, this proves by induction that counts of wide maps are
// right: a direct proof takes too long.
module popcount_step_proof #(
    parameter int unsigned W = 128
) (
    input logic [W-1:0] map_i
);
  localparam int unsigned GROUPS = (W + 5) / 6;

  logic [$clog2(W):0]      count;
  logic [6*GROUPS-1:0]     padded;
  logic [GROUPS-1:0]       ones, twos, fours;
  logic [$clog2(GROUPS):0] count_of_ones, count_of_twos, count_of_fours;

  popcount #(.W(W)) i_popcount (.map_i(map_i), .count_o(count));

  assign padded = {{6 * GROUPS - W{1'b0}}, map_i};
  generate
    for (genvar g = 0; g < GROUPS; g++) begin : g_group
      popcount_group i_group (.bits_i(padded[6*g+:6]), .count_o({fours[g], twos[g], ones[g]}));
    end
  endgenerate
  popcount #(.W(GROUPS)) i_ones (.map_i(ones), .count_o(count_of_ones));
  popcount #(.W(GROUPS)) i_twos (.map_i(twos), .count_o(count_of_twos));
  popcount #(.W(GROUPS)) i_fours (.map_i(fours), .count_o(count_of_fours));

  always_comb assert (32'(count) == 32'(count_of_ones) + 2 * 32'(count_of_twos) + 4 * 32'(count_of_fours));
endmodule
