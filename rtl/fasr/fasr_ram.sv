// Memory with a write port and a read port of one cycle: a block RAM. A read in the cycle of a write returns the old
// contents.
module fasr_ram #(
    parameter int unsigned W = 32,
    parameter int unsigned A = fasr_pkg::QP_W
) (
    input  logic         clk,
    input  logic         write_i,
    input  logic [A-1:0] write_at_i,
    input  logic [W-1:0] data_i,
    input  logic [A-1:0] read_at_i,
    output logic [W-1:0] data_o
);
  logic [W-1:0] entries[2**A];
  always_ff @(posedge clk) begin
    if (write_i) entries[write_at_i] <= data_i;
    data_o <= entries[read_at_i];
  end
endmodule
