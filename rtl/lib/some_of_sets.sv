// Whether any of N sets has an element, and whether all together have two, from the same about each.
module some_of_sets #(
    parameter int unsigned N = 22
) (
    input  logic [N-1:0] any_i,
    input  logic [N-1:0] two_i,
    output logic         any_o,
    output logic         two_o
);
  localparam int unsigned THIRDS = (N + 2) / 3;

  logic [3*THIRDS-1:0] padded_any, padded_two;
  logic [THIRDS-1:0]   any, two;
  assign padded_any = (3 * THIRDS)'(any_i);
  assign padded_two = (3 * THIRDS)'(two_i);

  always_comb begin
    logic [2:0] a;
    for (int unsigned t = 0; t < THIRDS; t++) begin
      a = padded_any[3*t+:3];
      any[t] = a != 3'd0;
      two[t] = padded_two[3*t+:3] != 3'd0 || (a[0] && a[1]) || (a[0] && a[2]) || (a[1] && a[2]);
    end
  end

  generate
    if (THIRDS == 1) begin : g_last
      assign any_o = any[0];
      assign two_o = two[0];
    end else begin : g_more
      some_of_sets #(.N(THIRDS)) i_sets (.any_i(any), .two_i(two), .any_o(any_o), .two_o(two_o));
    end
  endgenerate
endmodule
