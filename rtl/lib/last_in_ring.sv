// Position of the last set bit in a ring of W bits (W is a power of two) whose first position is `head_i`.
//
// The map is reversed, so that the first bit before the head is found: a search forwards from the reversed position.
module last_in_ring #(
    parameter int unsigned W = 128
) (
    input  logic [W-1:0]         map_i,
    input  logic [$clog2(W)-1:0] head_i,
    output logic                 found_o,
    output logic [$clog2(W)-1:0] position_o
);
  logic [W-1:0]         reversed;
  logic [$clog2(W)-1:0] position, last;

  always_comb for (int unsigned i = 0; i < W; i++) reversed[i] = map_i[W-1-i];

  // The last position before the head is `head - 1`, whose reverse is `W - 1 - (head - 1)`: `-head` modulo W.
  assign last = -head_i;

  first_in_ring #(.W(W)) i_search (.map_i(reversed), .head_i(last), .found_o(found_o), .position_o(position));

  assign position_o = ~position;
endmodule
