// Memory with one write port and READS read ports; reads are registered, and see the contents before this cycle's
// write.
//
// Synthesis makes a copy of the memory for each read port that is used.
module ram_1wnr #(
    parameter int unsigned WIDTH = 36,
    parameter int unsigned DEPTH = 1024,
    parameter int unsigned READS = 2
) (
    input  logic                           clk,
    input  logic                           we_i,
    input  logic [$clog2(DEPTH)-1:0]       waddr_i,
    input  logic [WIDTH-1:0]               wdata_i,
    input  logic [READS*$clog2(DEPTH)-1:0] raddr_i,
    output logic [READS*WIDTH-1:0]         rdata_o
);
  localparam int unsigned A = $clog2(DEPTH);

  logic [WIDTH-1:0] memory_q[DEPTH];

  always_ff @(posedge clk) if (we_i) memory_q[waddr_i] <= wdata_i;

  generate
    for (genvar r = 0; r < READS; r++) begin : g_read
      always_ff @(posedge clk) rdata_o[r*WIDTH+:WIDTH] <= memory_q[raddr_i[r*A+:A]];
    end
  endgenerate
endmodule
