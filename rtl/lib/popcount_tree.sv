// A level of the tree of `popcount`: adds the counts of two halves of the map.
module popcount_tree #(
    parameter int unsigned W = 128
) (
    input  logic [W-1:0]       map_i,
    output logic [$clog2(W):0] count_o
);
  localparam int unsigned HALF = W / 2;
  generate
    if (W == 2) begin : g_pair
      assign count_o = {map_i[0] & map_i[1], map_i[0] ^ map_i[1]};
    end else begin : g_halves
      logic [$clog2(HALF):0] low, high;
      popcount_tree #(.W(HALF)) i_low (.map_i(map_i[HALF-1:0]), .count_o(low));
      popcount_tree #(.W(HALF)) i_high (.map_i(map_i[W-1:HALF]), .count_o(high));
      assign count_o = {1'b0, low} + {1'b0, high};
    end
  endgenerate
endmodule
