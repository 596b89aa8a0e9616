// Whether any bit of a map is set, and whether two are.
//
// Groups of six bits first, then three groups at a time: a lookup table has six inputs.
module some_set #(
    parameter int unsigned W = 128
) (
    input  logic [W-1:0] map_i,
    output logic         any_o,
    output logic         two_o
);
  localparam int unsigned GROUPS = (W + 5) / 6;

  logic [6*GROUPS-1:0] padded;
  logic [GROUPS-1:0]   any, two;
  assign padded = (6 * GROUPS)'(map_i);

  always_comb begin
    for (int unsigned g = 0; g < GROUPS; g++) begin
      any[g] = padded[6*g+:6] != 6'd0;
      // x & (x - 1) is without the lowest bit.
      two[g] = (padded[6*g+:6] & (padded[6*g+:6] - 6'd1)) != 6'd0;
    end
  end
  some_of_sets #(.N(GROUPS)) i_sets (.any_i(any), .two_i(two), .any_o(any_o), .two_o(two_o));
endmodule
