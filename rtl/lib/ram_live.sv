// Which of WRITES writers was the last to write each address: the table of live banks of a memory with several write
// ports, itself in memories with one.
//
// Each pair of writers has two bits for an address, one written by each: a writer makes them equal if it is the first
// of the pair, and different if it is the second. The last writer of an address is the one that wins all its pairs.
// WRITES * (WRITES - 1) memories of one bit in logic cells take the place of a register for each address, whose write
// ports and read ports would be as many decoders and multiplexers.
//
// Reads have no register, and see earlier writes only; `live_o` has a bit for each writer, and is anything for an
// address that was never written. At most one port writes an address in a cycle.
module ram_live #(
    parameter int unsigned DEPTH = 1024,
    parameter int unsigned WRITES = 2,
    parameter int unsigned READS = 2
) (
    input  logic                            clk,
    input  logic [WRITES-1:0]               we_i,
    input  logic [WRITES*$clog2(DEPTH)-1:0] waddr_i,
    input  logic [READS*$clog2(DEPTH)-1:0]  raddr_i,
    output logic [READS*WRITES-1:0]         live_o
);
  localparam int unsigned A = $clog2(DEPTH);

  // wins[i][j] of a reader: writer i was later than writer j.
  logic [READS*WRITES*WRITES-1:0] wins;

  generate
    for (genvar i = 0; i < WRITES; i++) begin : g_first
      for (genvar r = 0; r < READS; r++) begin : g_self
        assign wins[(r*WRITES+i)*WRITES+i] = 1'b1;
      end
      for (genvar j = i + 1; j < WRITES; j++) begin : g_second
        logic [READS-1:0] first, second;
        logic             first_before, second_before;
        // Each memory has one more reader: the other writer, for the address that it writes.
        ram_lut #(.WIDTH(1), .DEPTH(DEPTH), .READS(READS + 1)) i_first (
            .clk(clk),
            .we_i(we_i[i]),
            .waddr_i(waddr_i[i*A+:A]),
            .wdata_i(second_before),
            .raddr_i({waddr_i[j*A+:A], raddr_i}),
            .rdata_o({first_before, first})
        );
        ram_lut #(.WIDTH(1), .DEPTH(DEPTH), .READS(READS + 1)) i_second (
            .clk(clk),
            .we_i(we_i[j]),
            .waddr_i(waddr_i[j*A+:A]),
            .wdata_i(!first_before),
            .raddr_i({waddr_i[i*A+:A], raddr_i}),
            .rdata_o({second_before, second})
        );
        for (genvar r = 0; r < READS; r++) begin : g_read
          assign wins[(r*WRITES+i)*WRITES+j] = first[r] == second[r];
          assign wins[(r*WRITES+j)*WRITES+i] = first[r] != second[r];
        end
      end
    end
    for (genvar l = 0; l < READS * WRITES; l++) begin : g_live
      assign live_o[l] = &wins[l*WRITES+:WRITES];
    end
  endgenerate
endmodule
