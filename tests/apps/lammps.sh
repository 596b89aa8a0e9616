#!/bin/sh
# A Lennard-Jones melt in LAMMPS on two ranks: its thermodynamic output, and the last forces, must be those of a run
# over shared memory. Each word behind the script stands before `lmp`.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
cat > melt.lmp <<'END'
units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 12 0 12 0 12
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 3.0 87287
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
neighbor 0.3 bin
fix 1 all nve
thermo 20
thermo_modify format float %.14g
run 200
write_dump all custom last.txt id x y z fx fy fz modify sort id format float %.14g
END
"$@" lmp -in melt.lmp -log none > output.txt 2>&1 || { cat output.txt; exit 1; }
# Step, temperature, energies, pressure; and every position and force.
awk '/^ *Step / { table = 1 } /^Loop time/ { table = 0 } table { print "result " $0 }' output.txt
echo "result positions and forces: $(sha256sum < last.txt), $(wc -l < last.txt) lines"
