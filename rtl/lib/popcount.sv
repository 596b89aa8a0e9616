// Number of set bits of a map; W is a power of two, and at least 2.
module popcount #(
    parameter int unsigned W = 128
) (
    input  logic [W-1:0]       map_i,
    output logic [$clog2(W):0] count_o
);
  popcount_tree #(.W(W)) i_tree (.map_i(map_i), .count_o(count_o));
endmodule
