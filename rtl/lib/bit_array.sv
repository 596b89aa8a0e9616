// A register for each of W bits, W a power of two and at least 4: some are set and some cleared in a cycle. A bit that is
// both is set. After a reset, all are clear.
//
// Each port decodes its position once (`one_hot`); an assignment to a bit with a variable number would be a shifter.
module bit_array #(
    parameter int unsigned W = 1024,
    parameter int unsigned SETS = 1,
    parameter int unsigned CLEARS = 1
) (
    input  logic                        clk,
    input  logic                        rst_n,
    input  logic [SETS-1:0]             set_i,
    input  logic [SETS*$clog2(W)-1:0]   set_at_i,
    input  logic [CLEARS-1:0]           clear_i,
    input  logic [CLEARS*$clog2(W)-1:0] clear_at_i,
    output logic [W-1:0]                bits_o
);
  localparam int unsigned B = $clog2(W);

  logic [SETS*W-1:0]   set;
  logic [CLEARS*W-1:0] clear;
  logic [W-1:0]        sets, clears;

  generate
    for (genvar p = 0; p < SETS; p++) begin : g_set
      one_hot #(.W(W)) i_set (.enable_i(set_i[p]), .position_i(set_at_i[p*B+:B]), .map_o(set[p*W+:W]));
    end
    for (genvar p = 0; p < CLEARS; p++) begin : g_clear
      one_hot #(.W(W)) i_clear (.enable_i(clear_i[p]), .position_i(clear_at_i[p*B+:B]), .map_o(clear[p*W+:W]));
    end
  endgenerate

  always_comb begin
    sets = '0;
    clears = '0;
    for (int unsigned p = 0; p < SETS; p++) sets = sets | set[p*W+:W];
    for (int unsigned p = 0; p < CLEARS; p++) clears = clears | clear[p*W+:W];
  end

  always_ff @(posedge clk) bits_o <= rst_n ? ((bits_o & ~clears) | sets) : '0;
endmodule
