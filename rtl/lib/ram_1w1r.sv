// Memory with a port to write and a port to read, for block RAM.
//
// Latency of a read: one cycle. A read in the cycle of a write to the same address returns what was there before, or
// anything: callers do not do that. Nothing is cleared by a reset.
module ram_1w1r #(
    parameter int unsigned W = 32,
    parameter int unsigned DEPTH = 1024
) (
    input  logic                     clk,
    input  logic                     write_i,
    input  logic [$clog2(DEPTH)-1:0] write_address_i,
    input  logic [W-1:0]             write_data_i,
    input  logic [$clog2(DEPTH)-1:0] read_address_i,
    output logic [W-1:0]             read_data_o
);
  logic [W-1:0] words[DEPTH];

  always_ff @(posedge clk) begin
    if (write_i) words[write_address_i] <= write_data_i;
    read_data_o <= words[read_address_i];
  end
endmodule
