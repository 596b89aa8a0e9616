// Place of a packet that is higher than all recorded ones, in the blocks of a bitmap. Combinational.
//
// Source: FaSR (2025) section III-D. Without blocks, they start behind the run of consecutive packets after the gap,
// which stays a number (`compression-cnt`, R-13), unless it is shorter than a block: then it is in the first block.
// The distance from the tail block is divided by 10 as (x * 205) >> 11, which is exact below 1024.
module fasr_place (
    input  fasr_pkg::lane_t      lane_i,
    input  fasr_pkg::psn_t       hole_i,      // the missing packet before the run
    input  fasr_pkg::psn_t       psn_i,
    output logic [6:0] needed_o,    // blocks to take
    output fasr_pkg::word_t      bit_o,       // the packet's bit in its block
    output fasr_pkg::word_t      first_o,     // bits of the run in the first block, if there is none yet
    output fasr_pkg::psn_t       first_base_o,
    output logic [9:0] run_o        // the run that stays a number once there are blocks
);
  logic        folds;
  fasr_pkg::psn_t        start;
  logic [9:0]  offset;
  logic [17:0] thrice, product;
  logic [6:0]  index;
  logic [3:0]  position;

  assign folds = lane_i.run < 10'd10;
  assign run_o = lane_i.slow ? lane_i.run : (folds ? 10'd0 : lane_i.run);
  assign first_base_o = hole_i + 24'd1 + {14'd0, folds ? 10'd0 : lane_i.run};
  assign first_o = (folds && !lane_i.slow) ? 10'((16'd1 << lane_i.run[3:0]) - 16'd1) : '0;

  assign start = lane_i.slow ? lane_i.last : first_base_o;
  assign offset = 10'(psn_i - start);
  assign thrice = {8'd0, offset} + {7'd0, offset, 1'd0};
  // 205 = 3 * 64 + 3 * 4 + 1
  assign product = {thrice[11:0], 6'd0} + {thrice[15:0], 2'd0} + {8'd0, offset};
  assign index = product[17:11];
  assign position = 4'(offset - {index, 3'd0} - {2'd0, index, 1'd0});
  assign bit_o = 10'(16'd1 << position);
  assign needed_o = index + {6'd0, !lane_i.slow};
endmodule
